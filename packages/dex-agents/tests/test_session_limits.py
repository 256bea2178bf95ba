"""What is too large, broken or misbehaving fails its call or its turn, and the session lives on."""

import asyncio
import base64
import random
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
from pydantic import JsonValue

from dex_agents import AgentHost, AgentSessionFlow
from dex_agents._storage.records import SessionRecord
from dex_agents._turn import heartbeat
from dex_agents._turn.heartbeat import heartbeats
from dex_agents.errors import (
    AnswerTooLargeError,
    ConfigurationError,
    EngineUnavailableError,
    SessionNotFoundError,
    TurnFailedError,
)
from dex_agents.messages import text_message
from dex_agents.runner import (
    BatchSettled,
    CallToolRequest,
    Closed,
    CloseTurnRequest,
    Finished,
    FrameworkState,
    ModelStep,
    RunModelRequest,
)
from dex_agents.session import AgentSession
from dex_agents.tools import Returned, ToolOutcome
from support.scripted_runner import LOG_VARIABLE, ScriptedRunner, read_runs
from support.scripted_sessions import pending

LONE_SURROGATE = "bad \ud800 text"


@pytest.fixture(autouse=True)
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "runs.jsonl"
    monkeypatch.setenv(LOG_VARIABLE, str(path))
    return path


@asynccontextmanager
async def session_of(runner: ScriptedRunner, directory: Path) -> AsyncGenerator[AgentSession]:
    flow = AgentSessionFlow(runner, name="scripted")
    async with AgentHost(flow, directory=directory / "engine") as host:
        session = host.session("s-1")
        await session.start()
        yield session


async def lives_on(session: AgentSession) -> None:
    assert (await session.ask("say alive", timeout=10)).text == "alive"
    assert (await session.snapshot()).lifecycle == "running"


def _noise(seed: int) -> str:
    """Return 450,000 characters that compress badly."""
    return base64.b64encode(random.Random(seed).randbytes(337_500)).decode("ascii")


class Growing(ScriptedRunner):
    """Keeps every result whole in its state, also when it closes a turn."""

    async def call_tool(self, request: CallToolRequest) -> ToolOutcome:
        return Returned(record=None, text="x" * 30_000 + request.call.name)

    async def run_model(self, request: RunModelRequest) -> ModelStep:
        step = await super().run_model(request)
        grown: dict[str, JsonValue] = {"bulk": [*_bulk(request.state), _noise(request.step.step_number)]}
        return step.model_copy(update={"state": _with(step.state, grown)})

    async def close_turn(self, request: CloseTurnRequest) -> Closed:
        closed = await super().close_turn(request)
        assert closed.state is not None
        bulk: dict[str, JsonValue] = {"bulk": [*_bulk(request.state), _noise(-request.step.step_number)]}
        return Closed(state=_with(closed.state, bulk))


class Rewriting(ScriptedRunner):
    """Replaces a large value in every Step."""

    async def run_model(self, request: RunModelRequest) -> ModelStep:
        step = await super().run_model(request)
        return step.model_copy(update={"state": _with(step.state, {"big": [str(request.step.step_number) * 50_000]})})


class BadCloser(ScriptedRunner):
    """Cannot close a turn."""

    def __init__(self, close: Callable[[CloseTurnRequest], Closed]) -> None:
        self._close = close

    async def close_turn(self, request: CloseTurnRequest) -> Closed:
        return self._close(request)


class Misbehaving(ScriptedRunner):
    """Has tools that raise what nobody expects."""

    async def call_tool(self, request: CallToolRequest) -> ToolOutcome:
        match request.call.name:
            case "write_exits":
                raise SystemExit(3)
            case "write_cancels":
                raise asyncio.CancelledError
            case "write_surrogate":
                raise ValueError(LONE_SURROGATE)
            case "write_progress":
                request.step.events.progress("p0", {"at": object()})  # pyright: ignore[reportArgumentType]
                return Returned(record=None, text="done")
            case _:
                return await super().call_tool(request)


def _bulk(state: FrameworkState | None) -> list[JsonValue]:
    value = state.value if state else None
    bulk = value.get("bulk") if isinstance(value, dict) else None
    return list(bulk) if isinstance(bulk, list) else []


def _with(state: FrameworkState, more: dict[str, JsonValue]) -> FrameworkState:
    assert isinstance(state.value, dict)
    return state.model_copy(update={"value": {**state.value, **more}})


async def test_a_full_history_fails_the_turn_and_not_the_session(tmp_path: Path) -> None:
    async with session_of(Growing(), tmp_path) as session:
        with pytest.raises(TurnFailedError, match="go on in a new session"):
            for _ in range(6):
                await session.ask("call read_a\nsay done", timeout=10)

        snapshot = await session.snapshot()
        assert (snapshot.lifecycle, snapshot.status) == ("running", "awaiting_user_message")


async def test_a_value_that_is_replaced_again_and_again_does_not_fill_the_session(tmp_path: Path) -> None:
    async with session_of(Rewriting(), tmp_path) as session:
        for number in range(45):
            assert (await session.ask(f"say {number}", timeout=10)).text == str(number)


@pytest.mark.parametrize("script", ["fail " + "f" * 400_000, "say " + "s" * 500_000])
async def test_a_turn_with_very_long_texts_leaves_the_session_alive(tmp_path: Path, script: str) -> None:
    async with session_of(ScriptedRunner(), tmp_path) as session:
        sent = await session.send(script)
        try:
            await session.wait_for_result(sent.message_id, timeout=10)
        except TurnFailedError as error:
            assert len(str(error)) < 3000

        await lives_on(session)


async def test_an_answer_that_is_too_large_is_refused_and_the_interrupt_stays_open(tmp_path: Path) -> None:
    async with session_of(ScriptedRunner(), tmp_path) as session:
        sent = await session.send("call write_a!, read_external\nsay done")
        approval, external = sorted(await pending(session, 2), key=lambda each: each.question.kind)

        for size in (3_000_000, 400_000):
            with pytest.raises(AnswerTooLargeError):
                await session.approve(approval.interrupt_id, arguments={"x": "a" * size})
        with pytest.raises(AnswerTooLargeError):
            await session.deny(approval.interrupt_id, reason="no" * 600_000)
        with pytest.raises(AnswerTooLargeError):
            await session.provide_tool_result(external.interrupt_id, "r" * 900_000)

        assert len((await session.snapshot()).pending_interrupts) == 2
        await session.deny(approval.interrupt_id, reason="no: " + "x" * 100_000)
        await session.provide_tool_result(external.interrupt_id, "r" * 100_000)
        await session.wait_for_result(sent.message_id, timeout=10)
        assert (await session.snapshot()).unsettled_calls == ()
        await lives_on(session)


async def test_a_large_batch_of_arguments_or_calls_fails_the_turn_clearly(tmp_path: Path) -> None:
    async with session_of(ScriptedRunner(), tmp_path) as session:
        with pytest.raises(TurnFailedError, match="asked for 200 calls at once, more than 128"):
            await session.ask("call " + ", ".join(f"read_{number}" for number in range(200)) + "\nsay done", timeout=10)

        await lives_on(session)


def close_raises(_: CloseTurnRequest) -> Closed:
    raise ValueError("cannot close")


def close_cancels(_: CloseTurnRequest) -> Closed:
    raise asyncio.CancelledError


def close_gives_nothing(_: CloseTurnRequest) -> Closed:
    return cast(Closed, None)


def close_gives_no_text(request: CloseTurnRequest) -> Closed:
    return Closed(state=_with(request.state, {"text": LONE_SURROGATE}))


def close_gives_too_much(request: CloseTurnRequest) -> Closed:
    return Closed(state=_with(request.state, {"b": "b" * 3_000_000}))


@pytest.mark.parametrize(
    "close", [close_raises, close_cancels, close_gives_nothing, close_gives_no_text, close_gives_too_much]
)
async def test_a_runner_that_cannot_close_a_turn_does_not_stop_the_session(
    tmp_path: Path, close: Callable[[CloseTurnRequest], Closed]
) -> None:
    async with session_of(BadCloser(close), tmp_path) as session:
        with pytest.raises(TurnFailedError, match="broken"):
            await session.ask("call write_a\nfail broken", timeout=10)

        recalled = await session.ask("recall", timeout=10)

        assert "do not repeat them: write_a" in recalled.text


@pytest.mark.parametrize(
    ("tool", "told"),
    [
        ("write_exits", "SystemExit: 3"),
        ("write_cancels", "CancelledError"),
        ("write_surrogate", "ValueError: bad ? text"),
    ],
)
async def test_a_tool_that_raises_what_nobody_expects_is_settled_by_its_effect(
    tmp_path: Path, tool: str, told: str
) -> None:
    async with session_of(Misbehaving(), tmp_path) as session:
        result = await session.ask(f"call {tool}\nrecall", timeout=10)

        assert f"{tool} -> outcome_unknown" in result.text
        assert told in result.text


async def test_progress_that_is_no_json_does_not_fail_its_tool(tmp_path: Path) -> None:
    async with session_of(Misbehaving(), tmp_path) as session:
        result = await session.ask("call write_progress\nrecall", timeout=10)

        assert "write_progress -> returned: done" in result.text


async def test_the_snapshot_shows_the_newest_messages_however_large_they_are(tmp_path: Path) -> None:
    async with session_of(ScriptedRunner(), tmp_path) as session:
        for number in range(4):
            await session.ask(f"say {number} " + "x" * 200_000, timeout=10)

        snapshot = await session.snapshot()

        assert snapshot.messages[-1].sequence == snapshot.last_sequence == 8
        assert snapshot.messages[-1].message.text.startswith("3 ")


async def test_settings_that_are_too_large_start_no_session(tmp_path: Path) -> None:
    flow = AgentSessionFlow(ScriptedRunner(), name="scripted")
    async with AgentHost(flow, directory=tmp_path / "engine") as host:
        with pytest.raises(ConfigurationError, match="more than 65536"):
            await host.session("s-1").start(settings={"a": "x" * 100_000})
        with pytest.raises(SessionNotFoundError):
            await host.session("s-1").snapshot()


async def test_a_client_of_another_agent_cannot_reach_a_session(tmp_path: Path) -> None:
    shop = AgentSessionFlow(ScriptedRunner(), name="shop")
    other = AgentSessionFlow(ScriptedRunner(), name="other")
    async with AgentHost(shop, other, directory=tmp_path / "engine") as host:
        session = host.session("x", "shop")
        await session.start()
        await session.send("call write_a!\nsay done")
        (interrupt,) = await pending(session)
        foreign = host.session("x", "other")

        for call in (
            foreign.send("say stolen"),
            foreign.ask("say stolen", timeout=5),
            foreign.steer("say stolen"),
            foreign.messages(),
            foreign.approve(interrupt.interrupt_id),
            foreign.cancel_turn(),
            foreign.update_settings({"a": 1}),
            foreign.stop(),
        ):
            with pytest.raises(SessionNotFoundError, match="belongs to agent 'shop'"):
                await call
        assert len((await session.snapshot()).pending_interrupts) == 1


async def test_a_host_whose_engine_dies_ends_with_the_reason(tmp_path: Path) -> None:
    flow = AgentSessionFlow(ScriptedRunner(), name="scripted")
    host = AgentHost(flow, directory=tmp_path / "engine")

    with pytest.raises(EngineUnavailableError, match=r"engine\.db could not be written"):
        async with host:
            session = host.session("s-1")
            await session.start()
            await _fill_the_disk(host)
            await asyncio.wait_for(session.ask("say lost", timeout=20), 20)


async def _fill_the_disk(host: AgentHost) -> None:
    """Let the next commit fail as a full disk does."""
    del host
    import gc
    import sqlite3

    from dex_agents_embedded._store.writer import Writer

    for writer in [each for each in gc.get_objects() if isinstance(each, Writer)]:

        def full() -> None:
            raise sqlite3.OperationalError("database or disk is full")

        writer._before_commit = full  # pyright: ignore[reportPrivateUsage]


def test_fields_of_a_newer_version_survive_an_older_worker() -> None:
    newer = SessionRecord.model_validate({"turn_number": 3, "added_later": {"a": 1}, "version": 2})

    written = newer.model_copy(update={"turn_number": 4}).model_dump_json()

    assert '"added_later":{"a":1}' in written
    assert '"turn_number":4' in written


class SilentContext:
    """Takes heartbeats like a Step's Context; the third one fails."""

    flow_id = "s-1"
    step_execution_id = "CallTool-1"

    def __init__(self) -> None:
        self.beats = 0

    async def heartbeat(self) -> None:
        self.beats += 1
        if self.beats == 3:
            raise ConnectionError("gone")


async def test_a_heartbeat_that_fails_does_not_cost_the_result(caplog: pytest.LogCaptureFixture) -> None:
    context = SilentContext()
    async with heartbeats(context, "tool 'slow'", every_seconds=0.02):  # pyright: ignore[reportArgumentType]
        while context.beats < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.02)

    assert "the heartbeats of CallTool-1 failed: gone" in caplog.text


async def test_code_that_blocks_the_event_loop_is_named_in_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    async with heartbeats(SilentContext(), "tool 'slow'", every_seconds=0.05):  # pyright: ignore[reportArgumentType]
        await asyncio.sleep(0)
        time.sleep(0.2)  # noqa: ASYNC251

    assert "blocked for 0.2 s while tool 'slow' ran (CallTool-1 of session s-1)" in caplog.text


class BlockingRunner(ScriptedRunner):
    """Blocks the event loop in a tool and in the model Step after it."""

    async def run_model(self, request: RunModelRequest) -> ModelStep:
        if isinstance(request.input, BatchSettled):
            time.sleep(0.15)  # noqa: ASYNC251
        return await super().run_model(request)

    async def call_tool(self, request: CallToolRequest) -> ToolOutcome:
        time.sleep(0.15)  # noqa: ASYNC251
        return await super().call_tool(request)


async def test_a_session_names_the_tool_and_the_runner_that_block_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 0.05)
    async with AgentHost(AgentSessionFlow(BlockingRunner(), name="blocking"), directory=tmp_path) as host:
        session = host.session("s-1")
        await session.start()
        await session.ask("call read_a\nsay done", timeout=10)

    blocked = [record.getMessage() for record in caplog.records if "was blocked" in record.getMessage()]
    assert any("while tool 'read_a' ran" in message for message in blocked), blocked
    assert any("while the BlockingRunner of agent 'blocking' ran" in message for message in blocked), blocked


class Escaping(ScriptedRunner):
    """Has a tool and a model whose text is what `surrogateescape` made of bytes that are not UTF-8."""

    async def call_tool(self, request: CallToolRequest) -> ToolOutcome:
        await super().call_tool(request)
        return Returned(record={LONE_SURROGATE: [LONE_SURROGATE]}, text=LONE_SURROGATE)

    async def run_model(self, request: RunModelRequest) -> ModelStep:
        step = await super().run_model(request)
        told: dict[str, JsonValue] = {"told": [LONE_SURROGATE, LONE_SURROGATE * 100]}
        update: dict[str, object] = {"state": _with(step.state, told)}
        if isinstance(step.outcome, Finished):
            said = f"{step.outcome.text} {LONE_SURROGATE}"
            update["outcome"] = Finished(text=said, output={"said": LONE_SURROGATE})
            update["messages"] = (text_message("assistant", said),)
        return step.model_copy(update=update)


@pytest.mark.parametrize("tool", ["idem_a", "write_a"])
async def test_one_character_that_is_no_unicode_costs_neither_the_outcome_of_a_call_nor_a_model_call(
    tmp_path: Path, log: Path, tool: str
) -> None:
    async with session_of(Escaping(), tmp_path) as session:
        result = await session.ask(f"call {tool}\nrecall", timeout=10)

        assert f"{tool} -> returned: bad ? text" in result.text
        assert result.text.endswith("bad ? text")
        assert result.output == {"said": "bad ? text"}
        assert [run["kind"] for run in read_runs(log)] == ["model", "tool", "model"]
        assert (await session.snapshot()).unsettled_calls == ()
        listed = [saved.message async for saved in session.iter_messages()]
        assert "bad ? text" in str(listed[-1].blocks)
        await session.ask("say on", timeout=10)
