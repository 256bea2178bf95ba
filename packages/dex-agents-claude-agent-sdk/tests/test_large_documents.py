"""A document that no Step could be sent reaches the model as it is. (Images are scaled down by the CLI.)"""

import base64
import json
import zlib
from pathlib import Path
from typing import Any, cast

import pytest

from dex_agents import AgentHost, AgentSessionFlow
from dex_agents.messages import MediaBlock, TextBlock
from dex_agents.runner import FrameworkState
from dex_agents_claude_agent_sdk import session_flow
from dex_agents_claude_agent_sdk._rows import CHUNK_BYTES, Row, pack
from dex_agents_claude_agent_sdk._state import MAIN, SessionState, read_state, write_state
from support.claude_sessions import POLICIES, Shop, call, shown
from support.fake_provider import Reply
from support.seeing_agent import MIB, image
from support.seeing_sessions import forget_everything, values_of

DOCUMENT = b"%PDF-1.4" + image(3 * MIB)


async def test_the_model_sees_a_large_document_in_every_turn_after_tools_and_restarts(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.provider.script([Reply(tool_calls=[call("write", "w1", "1")]), Reply(text="one"), Reply(text="two")])
    data = base64.b64encode(DOCUMENT).decode()
    document = MediaBlock(media_type="application/pdf", data_base64=data)

    def make_flow() -> AgentSessionFlow:
        return session_flow(shop.options(), name="reads", tools=POLICIES)

    async with AgentHost(make_flow(), directory=tmp_path / "engine") as host:
        session = host.session("s-1")
        await session.start()
        await session.ask([TextBlock(text="What is this?"), document], timeout=60)
    forget_everything(monkeypatch)
    async with AgentHost(make_flow(), directory=tmp_path / "engine") as host:
        await host.session("s-1").ask("And now?", timeout=60)

    seen = [json.dumps([block for _, block in shown(request)]).count(data) for request in shop.provider.requests]
    assert seen == [1, 1, 1]
    assert values_of(tmp_path / "engine")["FrameworkRunState"] < 50_000


def said(*blocks: Row) -> Row:
    return {"type": "user", "message": {"role": "user", "content": list(blocks)}}


def document_of(size: int) -> Row:
    return {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "x" * size}}


def state_with(rows: list[Row]) -> FrameworkState:
    return write_state(SessionState(session_id="s", cli_version="2", chunks={MAIN: tuple(pack(rows))}))


@pytest.mark.parametrize("text", ["ü", "\ud800 is half of a character"])
def test_a_row_with_a_large_document_is_read_as_it_was_and_earlier_releases_hand_it_back(text: str) -> None:
    rows = [said(), said({"type": "text", "text": text}, document_of(CHUNK_BYTES + 1)), said()]
    is_plain = text == "ü"

    state = state_with(rows)

    assert state.format == (2 if is_plain else 1)  # earlier releases read 1
    read = read_state(state)
    assert read is not None
    assert [chunk.startswith("{") for chunk in read.chunks[MAIN]] == [False, is_plain, False]
    assert read.rows() == {MAIN: rows}


@pytest.mark.parametrize(
    "row",
    [
        said({"type": "text", "text": "x" * 600_000}),
        said({"type": "tool_result", "tool_use_id": "t", "content": "x" * 600_000}),
        said(document_of(300_000), {"type": "text", "text": "x" * 300_000}),
        {"type": "user", "message": {"role": "user", "content": "x" * 600_000}},
        {"type": "system", "content": "x" * 600_000},
    ],
)
def test_a_large_row_without_a_large_document_is_written_as_earlier_releases_read_it(row: Row) -> None:
    state = state_with([said(), row, said()])

    lines = [json.dumps(each, separators=(",", ":")).encode() for each in (said(), row, said())]
    alone = [base64.b64encode(zlib.compress(line, 6)).decode() for line in lines]
    assert state.format == 1
    assert cast("dict[str, Any]", state.value)["rows"] == {MAIN: alone}
