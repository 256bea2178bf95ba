"""Run the agents you already have as durable sessions on Dex."""
