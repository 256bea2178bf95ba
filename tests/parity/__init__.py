"""One table of scenarios for every adapter: a plain run and a durable session must show the model the same.

README.md says how to add a scenario or an adapter's column.
"""
