"""Workers die in a sealed session's model call and write; another one goes on, and nothing is readable."""

import json
import secrets
from pathlib import Path

import pytest

from dex_agents import AgentSessionClient
from support.durable_processes import DurableProcesses
from support.scripted_runner import LOG_VARIABLE, read_runs
from support.scripted_sessions import sealed_flow
from support.waiting import wait_for

SECRET = "xyzzy-plugh"


def readable(directory: Path) -> list[str]:
    """Return the engine's files in which the secret, or what the session said around it, can be read."""
    needles = (SECRET.encode(), SECRET.encode("utf-16-le"), b"outcome_unknown", b"again-sleep-once")
    files = (path for path in directory.rglob("*") if path.is_file())
    return [path.name for path in files if any(needle in path.read_bytes() for needle in needles)]


@pytest.mark.timeout(120)
async def test_a_sealed_session_goes_on_after_kills_and_stays_sealed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, data = tmp_path / "log", tmp_path / "data"
    monkeypatch.setenv("SEALED_KEYS", json.dumps({name: secrets.token_hex(32) for name in ("k1", "k2")}))
    with DurableProcesses(tmp_path, "support.scripted_sessions:sealed_flow", {LOG_VARIABLE: str(log)}) as processes:
        processes.start_engine()
        processes.start_worker()

        async def ran(*kinds: str) -> None:
            async def have() -> bool:
                return [run["kind"] for run in read_runs(log)] == list(kinds)

            await wait_for(have, what=f"the runs {kinds}", seconds=30)

        async with AgentSessionClient(sealed_flow(), address=processes.address) as client:
            session = client.session("s-1")
            await session.start(settings={"customer": SECRET})
            sent = await session.send(f"again-sleep-once\ncall write_blocks\nsay {SECRET}")
            await ran("model")
            assert readable(data) == []
            processes.kill_worker()
            processes.start_worker()
            # The model call was repeated by the other Worker; a write never is.
            await ran("model", "model", "model", "tool")
            assert readable(data) == []
            processes.kill_and_restart()
            assert (await session.wait_for_result(sent.message_id, timeout=40)).text == SECRET
            recalled = await session.ask("recall", timeout=30)
            snapshot = await session.snapshot()
        assert "write_blocks -> outcome_unknown" in recalled.text
        assert f"assistant: {SECRET}" in recalled.text
        assert [call.name for call in snapshot.unsettled_calls] == ["write_blocks"]
        assert snapshot.settings == {"customer": SECRET}
        assert sum(run["kind"] == "tool" for run in read_runs(log)) == 1
        assert any(path.suffix == ".db" for path in data.iterdir())
        assert readable(data) == []
