from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from support.claude_sessions import Shop
from support.fake_provider import FakeProvider


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def provider() -> AsyncGenerator[FakeProvider]:
    async with FakeProvider() as provider:
        yield provider


@pytest.fixture
def shop(provider: FakeProvider, tmp_path: Path) -> Shop:
    provider.forget_requests()
    return Shop(provider, tmp_path)
