"""States of an agent in the Claude Agent SDK in the middle of a turn, recorded to be read by later releases.

With a release of the range installed, from the repository's root:

    PYTHONPATH=tests python -m support.claude_states packages/dex-agents-claude-agent-sdk/tests/recorded_states
"""

import asyncio
import json
import sys
from importlib.metadata import version
from pathlib import Path

from dex_agents.messages import TextBlock
from dex_agents.runner import NewTurn, RunModelRequest, StepContext
from dex_agents.testing import RecordedEvents
from dex_agents_claude_agent_sdk import ClaudeAgentRunner
from support.claude_sessions import POLICIES, Shop, call
from support.fake_provider import FakeProvider, Reply

DIRECTORY = Path("/tmp/shop")
"""A neutral one: rows name the directory in which they were written."""


def step(number: int) -> StepContext:
    """Write where a request comes from."""
    return StepContext(
        session_id="session-1",
        turn_id="turn-1",
        step_number=number,
        attempt=1,
        settings={},
        events=RecordedEvents(),
    )


async def record(directory: Path) -> None:
    """Ask for a read and two writes, and keep the state in which the writes are open."""
    DIRECTORY.mkdir(exist_ok=True)  # noqa: ASYNC240  nothing else runs here
    calls = [call("read", "r", "1"), call("write", "w1", "1"), call("write", "w2", "2")]
    async with FakeProvider() as provider:
        provider.script([Reply(reasoning="Both of them.", tool_calls=calls)])
        runner = ClaudeAgentRunner(Shop(provider, DIRECTORY).options(), tools=POLICIES)
        request = RunModelRequest(step=step(1), state=None, input=NewTurn(content=(TextBlock(text="go"),)))
        made = await runner.run_model(request)
    path = directory / f"claude-agent-sdk-{version('claude-agent-sdk')}.json"
    path.write_text(json.dumps(made.model_dump(mode="json"), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(record(Path(sys.argv[1])))
