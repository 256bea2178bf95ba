"""The agent of the turn benchmark in each framework: a module NAME (with `_` for `-`) that has `make_agent`."""
