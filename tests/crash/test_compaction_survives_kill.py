"""Processes die in the middle of a compaction, and while old messages move into a chunk or are deleted."""

from pathlib import Path

import pytest

from dex_agents import AgentSessionClient
from support.crash_compacting import RECALLED, flow
from support.crash_points import held_marker
from support.durable_processes import DurableProcesses
from support.scripted_runner import LOG_VARIABLE, read_runs
from support.waiting import wait_for

SECONDS = 40

# The fourth turn compacts. From the second one on, each moves the oldest messages into a chunk; the sixth deletes one.
MOMENTS = [
    (4, "CompactContext-1.execute.before", "worker"),
    (4, "middle", "both"),
    (4, "CompactContext-1.execute.after", "engine"),
    (3, "AwaitUserMessage-3.execute.after", "both"),
    (6, "AwaitUserMessage-6.execute.after", "worker"),
]


ENDED = 3
"""Compactions of an undisturbed conversation."""


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("turn", "moment", "victim"), MOMENTS)
async def test_a_long_session_survives_a_kill(tmp_path: Path, turn: int, moment: str, victim: str) -> None:
    points, release, runs = tmp_path / "points", tmp_path / "release", tmp_path / "runs.jsonl"
    environment = {
        "CRASH_FLOW": "support.crash_compacting:flow",
        "CRASH_POINTS": str(points),
        "CRASH_POINT": "" if moment == "middle" else moment,
        "CRASH_RELEASE": str(release),
        LOG_VARIABLE: str(runs),
    }

    def compactions() -> int:
        return sum(run["kind"] == "compact" for run in read_runs(runs))

    with DurableProcesses(tmp_path, "support.crash_worker:flow", environment) as processes:
        processes.start_engine()
        processes.start_worker()
        async with AgentSessionClient(flow, address=processes.address) as client:
            session = client.session("long")
            await session.start()

            async def is_held() -> bool:
                return compactions() == 1 if moment == "middle" else held_marker(points).exists()

            answers: list[str] = []
            for number in range(1, 7):
                # The summary's first model call hangs in the case that dies in its middle.
                blocks = "blocks-summary" if moment == "middle" and number == 1 else ""
                await session.send(f"pad 1200\n{blocks}", message_id=f"m-{number}")
                if number == turn:
                    await wait_for(is_held, what=moment, seconds=SECONDS)
                    if victim in ("engine", "both"):
                        processes.kill_engine()
                    if victim in ("worker", "both"):
                        processes.kill_worker()
                    release.touch()
                    if victim in ("engine", "both"):
                        processes.start_engine()
                    if victim in ("worker", "both"):
                        processes.start_worker()
                answers.append((await session.wait_for_result(f"m-{number}", timeout=SECONDS)).text)
            recalled = await session.ask("recall", timeout=SECONDS)
            saved = [message async for message in session.iter_messages()]
            page = await session.messages()

    assert [len(answer) for answer in answers] == [1200] * 6
    # What the model reads, and what people read, is what it is without any kill.
    assert [line.rstrip("x") for line in recalled.text.splitlines() if line and line != "blocks-summary"] == RECALLED
    assert [message.sequence for message in saved] == list(range(page.deleted_before_sequence, 15))
    assert page.deleted_before_sequence > 1
    # Only the call that had begun was repeated.
    assert compactions() - ENDED <= (moment in ("middle", "CompactContext-1.execute.after"))
