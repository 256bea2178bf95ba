"""Fixtures of the core's tests."""

from pathlib import Path

import pytest

from support.scripted_runner import LOG_VARIABLE


@pytest.fixture
def anyio_backend() -> str:
    """Sessions run on asyncio: gRPC's event loop is no other."""
    return "asyncio"


@pytest.fixture(autouse=True)
def no_server_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that the developer's shell names must not serve these tests."""
    monkeypatch.delenv("DEX_SERVER_ADDRESS", raising=False)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which the scripted runner notes what it ran."""
    path = tmp_path / "runs.jsonl"
    monkeypatch.setenv(LOG_VARIABLE, str(path))
    return path
