"""A document that no Step could be sent reaches the model as it is. (Images are scaled down by the CLI.)"""

import base64
import json
from pathlib import Path

import pytest

from dex_agents import AgentHost, AgentSessionFlow
from dex_agents.messages import MediaBlock, TextBlock
from dex_agents_claude_agent_sdk import session_flow
from dex_agents_claude_agent_sdk._rows import CHUNK_BYTES, pack, unpack
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


@pytest.mark.parametrize("text", ["ü", "\ud800 is half of a character"])
def test_a_row_that_is_larger_than_a_chunk_is_read_as_it_was(text: str) -> None:
    rows = [{"type": "user", "n": 1}, {"type": "user", "data": text + "x" * CHUNK_BYTES}, {"type": "user", "n": 2}]

    chunks = pack(rows)

    assert [chunk.startswith("{") for chunk in chunks] == [False, text == "ü", False]
    assert unpack(chunks) == rows
