"""The code of docs/full-sessions.md does what the page says."""

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from dex_agents import AgentSessionOptions
from dex_agents.session import AgentSession
from dex_agents.snapshot import TurnResult
from support.scripted_sessions import scripted_session

PAGE = Path(__file__).parents[2] / "docs" / "full-sessions.md"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_conversation_goes_on_in_a_new_session_when_the_old_one_is_full(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL))
    exec(compile(code, str(PAGE), "exec"), names)  # noqa: S102  the page's own code
    ask_on = cast("Callable[[AgentSession, str, str], Awaitable[tuple[AgentSession, TurnResult]]]", names["ask_on"])
    options = AgentSessionOptions(session_capacity_bytes=1_200_000)
    async with scripted_session(tmp_path, options=options) as session:
        used = [session.session_id]
        newest = session
        for number in range(5):
            newest, result = await ask_on(newest, f"say {number}{'x' * 100_000}", f"m-{number}")
            used.append(newest.session_id)
        assert used[:4] == ["s-1"] * 4
        assert used[-1] == "s-1-next"
        assert (await ask_on(session, f"say 4{'x' * 100_000}", "m-4"))[1] == result
