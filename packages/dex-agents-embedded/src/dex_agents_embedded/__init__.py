"""A one-machine engine for Dex Flows: the Dex gRPC protocol over one SQLite file."""
