"""How a client reaches sessions: connection, waiting, errors of the service."""
