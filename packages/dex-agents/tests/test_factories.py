"""What an application makes for one Step is made in each of its forms, and closed only when it asks for that."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from dex_agents.factories import open_for_step
from dex_agents.runner import StepContext
from dex_agents.testing import RecordedEvents

STEP = StepContext(session_id="s", turn_id="turn-1", step_number=1, attempt=1, settings={}, events=RecordedEvents())


class SharedClient:
    """A client of the whole process, which a Step must not close."""

    def __init__(self) -> None:
        self.is_closed = False

    async def __aenter__(self) -> "SharedClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.is_closed = True


async def test_nothing_is_made_without_a_factory() -> None:
    async with open_for_step(None, STEP) as made:
        assert made is None


async def test_a_plain_and_an_async_function_make_it_of_the_step() -> None:
    async def later(step: StepContext) -> str:
        return step.session_id

    async with open_for_step(lambda step: step.turn_id, STEP) as made:
        assert made == "turn-1"
    async with open_for_step(later, STEP) as made:
        assert made == "s"


async def test_what_asynccontextmanager_makes_is_closed_behind_the_step() -> None:
    said: list[str] = []

    @asynccontextmanager
    async def connect(step: StepContext) -> AsyncGenerator[str]:
        yield step.session_id
        said.append("closed")

    async with open_for_step(connect, STEP) as made:
        assert (made, said) == ("s", [])
    assert said == ["closed"]


async def test_a_shared_client_stays_open() -> None:
    client = SharedClient()

    def share(step: StepContext) -> SharedClient:
        del step
        return client

    async with open_for_step(share, STEP) as made:
        assert made is client
    assert not client.is_closed
