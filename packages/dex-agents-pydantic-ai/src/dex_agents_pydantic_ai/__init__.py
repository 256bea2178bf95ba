"""Pydantic AI agents as durable sessions on Dex."""
