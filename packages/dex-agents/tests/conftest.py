"""Fixtures of the core's tests."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """Sessions run on asyncio: gRPC's event loop is no other."""
    return "asyncio"


@pytest.fixture(autouse=True)
def no_server_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that the developer's shell names must not serve these tests."""
    monkeypatch.delenv("DEX_SERVER_ADDRESS", raising=False)
