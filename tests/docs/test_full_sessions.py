"""The code of docs/full-sessions.md does what the page says."""

from base64 import b64encode
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from dex_agents import AgentSessionOptions
from dex_agents.session import AgentSession
from dex_agents.snapshot import TurnResult
from readme_program import python_blocks
from support.scripted_sessions import scripted_session

PAGE = Path(__file__).parents[2] / "docs" / "full-sessions.md"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.parametrize(
    ("newest_messages", "forks", "kept"),
    # With 40, the new session has all ten messages of the log, and room: a fork has replaced nothing yet.
    [(2, 1, 2), (40, 1, 10)],
)
async def test_a_conversation_goes_on_in_a_new_session_when_the_old_one_is_full(
    tmp_path: Path, newest_messages: int, forks: int, kept: int
) -> None:
    names: dict[str, Any] = {}
    code = "\n".join(python_blocks(PAGE))
    code = code.replace("newest_messages = 200", f"newest_messages = {newest_messages}")
    exec(compile(code, str(PAGE), "exec"), names)  # noqa: S102  the page's own code
    ask_on = cast("Callable[[AgentSession, str, str], Awaitable[tuple[AgentSession, TurnResult]]]", names["ask_on"])
    options = AgentSessionOptions(session_capacity_bytes=1_800_000)
    async with scripted_session(tmp_path, options=options) as session:
        # Random, since what a session keeps is compressed.
        said = [b64encode(Random(number).randbytes(45_000)).decode() for number in range(6)]
        texts = [f"say {number}{text}" for number, text in enumerate(said)]
        for number in range(5):
            used, _ = await ask_on(session, texts[number], f"m-{number}")
            assert used.session_id == "s-1"
        used, result = await ask_on(session, texts[5], "m-5")
        assert (used.session_id, result.turn_id) == ("s-1" + "-next" * forks, "turn-6")
        assert len((await used.messages()).messages) == kept + 2
        assert (await ask_on(session, texts[5], "m-5"))[1] == result
