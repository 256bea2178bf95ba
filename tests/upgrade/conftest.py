from collections.abc import AsyncGenerator

import pytest

from support.fake_provider import FakeProvider


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def provider() -> AsyncGenerator[FakeProvider]:
    async with FakeProvider() as provider:
        yield provider
