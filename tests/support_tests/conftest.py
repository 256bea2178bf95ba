"""A provider for each test."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from support.fake_provider import FakeProvider


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def provider() -> AsyncGenerator[FakeProvider]:
    async with FakeProvider() as provider:
        yield provider
