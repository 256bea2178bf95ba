"""The code of docs/long-sessions.md does what the page says."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from dex_agents import AgentSessionOptions
from dex_agents.session import AgentSession
from readme_program import python_blocks
from support.scripted_sessions import scripted_session

PAGE = Path(__file__).parents[2] / "docs" / "long-sessions.md"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_conversation_is_copied_out_whole_while_retention_deletes_it(tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    code = "\n".join(python_blocks(PAGE))
    exec(compile(code, str(PAGE), "exec"), names)  # noqa: S102  the page's own code
    options = cast("AgentSessionOptions", names["options"])
    copy_out = cast("Callable[[AgentSession, Path, int], Awaitable[int]]", names["copy_out"])
    small = replace(options, compaction=1000, retained_message_limit=4, message_window_size=2, message_chunk_size=2)
    copy = tmp_path / "copy.jsonl"
    async with scripted_session(tmp_path / "engine", options=small) as session:
        copied = 0
        for _ in range(7):
            await session.ask("pad 600", timeout=10)
            copied = await copy_out(session, copy, copied)
        assert (await session.messages()).deleted_before_sequence > 1
        with pytest.raises(RuntimeError, match="copied too late"):
            await copy_out(session, tmp_path / "late.jsonl", 0)
    lines = [json.loads(line) for line in copy.read_text(encoding="utf-8").splitlines()]
    assert [line["sequence"] for line in lines] == list(range(1, 15))
