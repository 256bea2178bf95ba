"""The addresses that the engine listens on, and why it cannot."""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Callable
from typing import Any, Final

from .errors import AddressError, AddressReason

_REASONS: Final[dict[int | None, tuple[AddressReason, str]]] = {
    errno.EADDRINUSE: ("address_in_use", "another program has it: stop that, or choose another port (0: any)"),
    errno.EACCES: ("address_denied", "this user may not take that port: choose one from 1024 on (0: any)"),
    errno.EPERM: ("address_denied", "this user may not take that port: choose one from 1024 on (0: any)"),
    errno.EADDRNOTAVAIL: ("address_not_available", "this machine has no such address: choose one of its own"),
    errno.EAFNOSUPPORT: ("address_not_available", "this machine has no such address: choose one of its own"),
}


def allowed_host(address: str, *, has_token: bool) -> str:
    """Return the host of an address, in the form that a gRPC target has.

    Raises:
        AddressError: It is not `host:port`, or the host is not a loopback one and there is no token.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        text = f"{address!r} is no address to listen on: write host:port, for example 127.0.0.1:0"
        raise AddressError(text, "address_not_allowed")
    if host != "localhost" and not has_token:
        try:
            is_loopback = ipaddress.ip_address(host.strip("[]")).is_loopback
        except ValueError:
            is_loopback = False
        if not is_loopback:
            text = (
                f"the engine does not listen on {address!r} without a token file: everybody who reaches it could call "
                "it. Use a loopback host (127.0.0.1, localhost, [::1]), or a token file"
            )
            raise AddressError(text, "address_not_allowed")
    return host


def listen(add_port: Callable[[str], int], address: str) -> int:
    """Take a port for a gRPC server.

    Args:
        add_port: The server's `add_insecure_port`.
        address: `host:port`, as `allowed_host` accepts it.

    Returns:
        The real port.

    Raises:
        AddressError: It cannot be listened on.
    """
    cause: Exception | None = None
    try:
        port = add_port(address)
    except RuntimeError as error:
        port, cause = 0, error
    if not port:
        # gRPC says only that it did not work.
        raise address_error(address, _refusal(address) or OSError(None, str(cause))) from cause
    return port


def address_error(address: str, error: OSError) -> AddressError:
    """Return the error for an address that the system refused."""
    if isinstance(error, socket.gaierror):
        why, remedy = error.strerror, "no such host is known: correct its name, or give an IP address"
        return AddressError(f"{address} cannot be listened on ({why}), {remedy}", "host_unknown")
    reason, remedy = _REASONS.get(error.errno, ("address_unusable", "choose another one"))
    return AddressError(f"{address} cannot be listened on ({error.strerror}), {remedy}", reason)


def _refusal(address: str) -> OSError | None:
    """Ask the system itself for the address, and return what it says against it."""
    host, _, port = address.rpartition(":")
    refusals: list[OSError] = []
    try:
        found: list[Any] = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except OSError as error:
        return error
    for family, kind, protocol, _, place in found:
        try:
            with socket.socket(family, kind, protocol) as attempt:
                attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                attempt.bind(place)
        except OSError as error:
            refusals.append(error)
    # A name may stand for several addresses, of which the machine need not have all.
    refusals.sort(key=lambda error: error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT))
    return refusals[0] if refusals else None
