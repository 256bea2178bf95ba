"""A one-machine engine for Dex Flows: the Dex gRPC protocol over one SQLite file.

`EmbeddedEngine` runs inside an event loop and serves Dex Clients and pull Workers on a loopback address.
"""

from ._engine import EmbeddedEngine
from .errors import AddressError, CommitFailedError, DataFileError, EngineError, EngineInUseError, TokenFileError

__all__ = [
    "AddressError",
    "CommitFailedError",
    "DataFileError",
    "EmbeddedEngine",
    "EngineError",
    "EngineInUseError",
    "TokenFileError",
]
