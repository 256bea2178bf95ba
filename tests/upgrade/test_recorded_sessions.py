"""Sessions that a release recorded in the middle of a turn are finished by today's code, and go on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dex_agents import AgentHost
from dex_agents.messages import TextBlock
from parity.column import COLUMNS, Column, column_and_marks
from parity.runs import run_on_the_engine, shown
from support.fake_provider import FakeProvider
from support.scripted_runner import LOG_VARIABLE
from support.scripted_sessions import pending, scripted_flow
from support.seeing_agent import digest, media, seeing_flow, sights
from support.seeing_sessions import attachments_in, values_of
from support.side_by_side import first_difference
from upgrade.stages import PICTURES, PLAIN_SESSION_ID, RECORDED, SAID_BEFORE, SALE, SESSION_ID, sale, unpack

RELEASES = sorted(path.name for path in RECORDED.iterdir())


def _cases() -> Iterator[object]:
    for release in RELEASES:
        for adapter in COLUMNS:
            recorded = RECORDED / release / f"{adapter}.db.gz"
            if not recorded.exists():
                continue  # the adapter is younger than that release
            column, marks = column_and_marks(adapter)
            yield pytest.param(column, recorded, id=f"{release}-{adapter}", marks=marks)


def test_there_are_recorded_sessions() -> None:
    assert RELEASES
    for release in RELEASES:
        assert (RECORDED / release / "plain.db.gz").exists()


@pytest.mark.parametrize(("column", "recorded"), list(_cases()))
async def test_a_recorded_session_shows_its_model_what_an_undisturbed_one_shows(
    tmp_path: Path, provider: FakeProvider, column: Column, recorded: Path
) -> None:
    undisturbed = await run_on_the_engine(column, SALE, column.paths[0], provider, tmp_path / "undisturbed")
    assert unpack(recorded, tmp_path / "engine") == [SESSION_ID]

    async with sale(column, provider, tmp_path / "engine", said=SAID_BEFORE) as (session, stage):
        assert (await session.messages()).messages[0].message.text == SALE.turns[0]
        (interrupt,) = await pending(session)
        await session.approve(interrupt.interrupt_id)
        results = [await session.wait_for_result(f"m-{number}", timeout=20) for number in (1, 2, 3)]

    assert [result.text for result in results] == [ending.output for ending in undisturbed.endings]
    expected = undisturbed.requests[SAID_BEFORE:]
    for wanted, got in zip(expected, shown(column, stage), strict=True):
        assert got == wanted, first_difference(wanted, got)


@pytest.mark.parametrize("release", RELEASES)
async def test_a_recorded_session_of_no_framework_goes_on(tmp_path: Path, release: str) -> None:
    assert unpack(RECORDED / release / "plain.db.gz", tmp_path / "engine") == [PLAIN_SESSION_ID]
    async with AgentHost(scripted_flow(), directory=tmp_path / "engine") as host:
        session = host.session(PLAIN_SESSION_ID)
        snapshot = await session.snapshot()
        assert (snapshot.title, snapshot.user, snapshot.settings) == ("a test", "tester", {"model": "small"})
        assert (snapshot.queued_messages, snapshot.steering_messages) == (1, 1)
        assert [call.name for call in snapshot.unsettled_calls] == ["write_raises"]
        (interrupt,) = snapshot.pending_interrupts

        await session.approve(interrupt.interrupt_id)

        recalled = (await session.wait_for_result("m-3", timeout=20)).text
        assert (await session.wait_for_result("m-4", timeout=20)).text == "queued"
        for line in (
            "write_raises -> outcome_unknown",
            "user: call write_b",
            "write_c -> returned",
            "steering: be quick",
        ):
            assert line in recalled, line
        assert "do not repeat them: write_b" in recalled
        assert (await session.send("call write_c!\nrecall", message_id="m-3")).repeated
        assert (await (await session.fork("s-2")).ask("say forked", timeout=10)).text == "forked"


@pytest.mark.parametrize("release", [each for each in RELEASES if (RECORDED / each / "pictures.db.gz").exists()])
async def test_a_recorded_session_with_large_messages_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str
) -> None:
    log = tmp_path / "log"
    monkeypatch.setenv(LOG_VARIABLE, str(log))
    first, second, third, last = map(digest, PICTURES)
    assert unpack(RECORDED / release / "pictures.db.gz", tmp_path / "engine") == [PLAIN_SESSION_ID]
    async with AgentHost(seeing_flow(), directory=tmp_path / "engine") as host:
        session = host.session(PLAIN_SESSION_ID)
        (attachment,) = attachments_in((await session.messages()).messages[0])
        assert await session.read_attachment(attachment) == PICTURES[0]
        again = [TextBlock(text="call read_a\nsay one"), media(PICTURES[0])]
        assert (await session.send(again, message_id="m-1")).repeated

        (interrupt,) = await pending(session)
        await session.approve(interrupt.interrupt_id)
        results = [await session.wait_for_result(f"m-{number}", timeout=20) for number in (2, 3)]
        assert [result.text for result in results] == ["two", "three"]
        await session.ask([TextBlock(text="say four"), media(PICTURES[3])], message_id="m-4", timeout=20)

        seen = [first, second, first]
        assert sights(log, "call_tool") == [seen]
        assert sights(log, "run_model") == [seen, [*seen, third], [*seen, third, last]]
        size = sum(map(len, PICTURES))
        assert size <= values_of(tmp_path / "engine")["AgentAttachments"] < size + 2_000
        fork = await session.fork("s-2")
        await session.purge()
        assert (await fork.ask("say forked", timeout=20)).text == "forked"
        assert sights(log)[-1] == [*seen, third, last]
