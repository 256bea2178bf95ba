import pytest
from agents import set_tracing_disabled

# Nothing may be sent to OpenAI's trace collector; the tests of traces have a processor of their own.
set_tracing_disabled(True)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
