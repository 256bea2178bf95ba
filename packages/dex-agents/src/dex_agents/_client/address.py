"""Where the Dex Server is: an argument, else the environment, in a form that gRPC understands."""

import os
from typing import Final

from dex_agents.errors import ConfigurationError

SERVER_ADDRESS_VARIABLE: Final = "DEX_SERVER_ADDRESS"
DEFAULT_SERVER_ADDRESS: Final = "127.0.0.1:8801"
"""Where `dex-agents dev` serves when it is told nothing else."""

_GRPC_SCHEMES: Final = ("unix:", "unix-abstract:", "dns:", "ipv4:", "ipv6:")


def named_server_address(address: str | None) -> str | None:
    """Return the checked address from the argument, else from `DEX_SERVER_ADDRESS`, else None.

    Raises:
        ConfigurationError: The address is not one.
    """
    if address is not None:
        return check_address(address, source="address")
    named = os.environ.get(SERVER_ADDRESS_VARIABLE, "")
    return check_address(named, source=SERVER_ADDRESS_VARIABLE) if named else None


def check_address(address: str, *, source: str) -> str:
    """Return the address when it is `host:port` or a gRPC target such as `unix:/run/dex.sock`.

    Args:
        address: What to check.
        source: The argument or variable it came from, named in the error.

    Raises:
        ConfigurationError: The address is not one.
    """
    if address.startswith(_GRPC_SCHEMES):
        return address
    if "://" in address:
        raise ConfigurationError(f"{source} is {address!r}: leave the scheme out, for example 127.0.0.1:8801")
    host, separator, port = address.rpartition(":")
    if not separator or not host or not port.isascii() or not port.isdigit() or not 1 <= int(port) <= 65535:
        raise ConfigurationError(f"{source} is {address!r}: give host:port, for example 127.0.0.1:8801")
    return address
