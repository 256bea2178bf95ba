"""Sessions that nobody can read where they are stored, and what happens without the key."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from dex import AsyncContext, RetryAfterError, ValueMappingError

from dex_agents import AgentHost, AgentSessionFlow, AgentSessionOptions, session_registry
from dex_agents._storage.message_log import stored_size
from dex_agents._storage.records import RunModelInput
from dex_agents._turn import handing_back
from dex_agents._turn.redaction import EventFeed
from dex_agents._turn.services import SessionServices
from dex_agents.encryption import Encryption
from dex_agents.errors import ConfigurationError, EncryptionKeyError, TurnFailedError
from dex_agents.messages import text_message
from dex_agents.runner import CallToolRequest, ModelStep, RunModelRequest
from dex_agents.session import AgentSession
from dex_agents.steps.run_model import RunModel
from dex_agents.tools import Asks, Question, Returned, ToolOutcome
from dex_agents_embedded import EmbeddedEngine
from support.scripted_runner import ScriptedRunner
from support.scripted_sessions import pending
from support.waiting import wait_for

SECRET = "xyzzy-plugh"
OLD, NEW = secrets.token_bytes(32), secrets.token_bytes(32)


class SecretiveRunner(ScriptedRunner):
    """A scripted agent that says the secret wherever an agent can say something."""

    async def run_model(self, request: RunModelRequest) -> ModelStep:
        request.step.events.reasoning(f"thinking of {SECRET}")
        return await super().run_model(request)

    async def call_tool(self, request: CallToolRequest) -> ToolOutcome:
        request.step.events.progress(request.call.call_id, {"found": SECRET})
        match request.call.name:
            case "read_secret":
                return Returned(record={"value": SECRET}, text=f"found {SECRET}")
            case "read_raises":
                raise ValueError(f"{SECRET} broke") from RuntimeError(SECRET)
            case "write_question" if not request.answers:
                question = Question(id="q", kind="answer", prompt=f"is it {SECRET}?")
                return Asks(questions=(question,), resume={"kept": SECRET})
            case _:
                return await super().call_tool(request)


def flow_with(encryption: Encryption | None) -> AgentSessionFlow:
    return AgentSessionFlow(SecretiveRunner(), name="secretive", options=AgentSessionOptions(at_rest=encryption))


@asynccontextmanager
async def engine_in(directory: Path) -> AsyncGenerator[EmbeddedEngine]:
    engine = EmbeddedEngine(directory, stream_backend="file")
    await engine.start()
    try:
        yield engine
    finally:
        await engine.stop()


@asynccontextmanager
async def served(engine: EmbeddedEngine, encryption: Encryption | None) -> AsyncGenerator[AgentSession]:
    async with AgentHost(flow_with(encryption), address=engine.address) as host:
        session = host.session("s-1")
        await session.start(settings={"customer": SECRET})
        yield session


def holds_secret(directory: Path) -> list[str]:
    needles = (SECRET.encode(), SECRET.encode("utf-16-le"))
    files = (path for path in directory.rglob("*") if path.is_file())
    return [path.name for path in files if any(needle in path.read_bytes() for needle in needles)]


async def talk(session: AgentSession) -> None:
    """Say the secret in every way in which a session can hear it."""
    asked = asyncio.create_task(
        session.ask(f"call read_secret, read_raises, write_question\nask {SECRET}\nsay {SECRET}", timeout=30)
    )
    (question,) = await pending(session)
    assert SECRET in question.question.prompt
    await session.answer_question(question.interrupt_id, SECRET, answered_by=SECRET)

    async def own_question() -> str | None:
        waiting = [each for each in (await session.snapshot()).pending_interrupts if not each.call_id]
        return waiting[0].interrupt_id if waiting else None

    await session.answer_question(await wait_for(own_question, what="the agent's question"), {"it is": SECRET})
    result = await asked
    assert (result.text, result.output) == (SECRET, {"said": SECRET})
    await session.update_settings({"other": SECRET})
    with pytest.raises(TurnFailedError, match=SECRET):
        await session.ask(f"fail {SECRET}", timeout=10)
    await session.send(f"call write_sleeps\nsay {SECRET}")
    await wait_for(lambda: is_running(session), what="a running tool")
    await session.steer(f"also {SECRET}")
    await session.send(f"say queued {SECRET}")
    await session.cancel_turn(reason=f"because of {SECRET}")
    (unsettled,) = await wait_for(lambda: unsettled_calls(session), what="an unknown outcome")
    await session.resolve_unknown_outcome(unsettled, happened=True, result=SECRET)


async def is_running(session: AgentSession) -> bool:
    return any(call.name == "write_sleeps" for call in (await session.snapshot()).tool_calls)


async def unsettled_calls(session: AgentSession) -> list[str] | None:
    snapshot = await session.snapshot()
    found = [call.call_id for call in snapshot.unsettled_calls if call.name == "write_sleeps"]
    return found if found and snapshot.status == "awaiting_user_message" else None


async def test_nothing_of_what_was_said_can_be_found_in_the_engines_directory(tmp_path: Path, log: Path) -> None:
    data = tmp_path / "data"
    async with engine_in(data) as engine, served(engine, Encryption({"k1": OLD}, write_with="k1")) as session:
        await talk(session)
        page = await session.messages()
        snapshot = await session.snapshot()
        forked = await session.fork("s-2", from_sequence=page.messages[-1].sequence)
        assert SECRET in (await forked.ask("recall", timeout=10)).text
    assert SECRET in page.model_dump_json()
    assert snapshot.settings == {"customer": SECRET, "other": SECRET}
    assert holds_secret(data) == []
    # The search itself works: the same session without the encryption is full of it.
    async with engine_in(tmp_path / "open") as engine, served(engine, None) as session:
        await session.ask(f"say {SECRET}", timeout=10)
    assert holds_secret(tmp_path / "open")


async def test_old_keys_still_read_new_values_use_the_newest_and_what_was_readable_stays_so(tmp_path: Path) -> None:
    async with engine_in(tmp_path) as engine:
        for encryption, word in (
            (None, "open"),
            (Encryption({"k1": OLD}, write_with="k1"), "first"),
            (Encryption({"k1": OLD, "k2": NEW}, write_with="k2"), "second"),
        ):
            async with served(engine, encryption) as session:
                await session.ask(f"say {word}", timeout=10)
        async with served(engine, Encryption({"k1": OLD, "k2": NEW}, write_with="k2")) as session:
            texts = [saved.message.text async for saved in session.iter_messages()]
            recalled = await session.ask("recall", timeout=10)
    assert texts[1::2] == ["open", "first", "second"]
    assert "assistant: open" in recalled.text


async def test_a_client_without_the_key_hears_which_one_it_needs(tmp_path: Path) -> None:
    async with engine_in(tmp_path) as engine, served(engine, Encryption({"k1": OLD}, write_with="k1")) as session:
        await session.ask("say hello", timeout=10)
        for encryption, match in (
            (None, "key 'k1', and this process has no encryption"),
            (Encryption({"k2": NEW}, write_with="k2"), r"key 'k1', and this process has \['k2'\]"),
            (Encryption({"k1": NEW}, write_with="k1"), "key 'k1' cannot be opened"),
        ):
            async with AgentHost(flow_with(encryption), address=engine.address, worker=False) as host:
                with pytest.raises(EncryptionKeyError, match=match) as raised:
                    await host.session("s-1").snapshot()
                assert raised.value.key_id == "k1"
                if encryption is not None:
                    with pytest.raises(EncryptionKeyError, match=r"a Worker could not serve the call: .*key 'k"):
                        await host.session("s-1").send("say what nobody can read")
        assert (await session.ask("say again", timeout=10)).text == "again"


async def test_what_a_client_without_the_key_sends_is_taken_and_sealed_where_it_is_stored(tmp_path: Path) -> None:
    sealed = Encryption({"k1": OLD}, write_with="k1")
    async with engine_in(tmp_path) as engine:
        async with AgentHost(flow_with(sealed), address=engine.address) as host:
            session = host.session("s-1")
            await session.start()
            async with AgentHost(flow_with(None), address=engine.address, worker=False) as plain:
                sent = await plain.session("s-1").send(f"say {SECRET}")
                assert sent.accepted
                # It hears that its message was taken, and nothing that the session says.
                with pytest.raises(EncryptionKeyError, match="key 'k1', and this process has no encryption"):
                    await plain.session("s-1").wait_for_result(sent.message_id, timeout=10)
            assert (await session.wait_for_result(sent.message_id, timeout=10)).text == SECRET
        assert holds_secret(tmp_path) == []


async def test_a_session_that_was_started_with_a_wrong_key_says_so_instead_of_hanging(tmp_path: Path) -> None:
    async with engine_in(tmp_path) as engine, served(engine, Encryption({"k1": OLD}, write_with="k1")) as session:
        wrong = flow_with(Encryption({"k1": NEW}, write_with="k1"))
        async with AgentHost(wrong, address=engine.address, worker=False) as host:
            await host.session("s-2").start()
        lost = session.client.session("s-2")
        for call in (lost.snapshot(), lost.send("say hello"), lost.ask("say hello", timeout=5), lost.steer("hello")):
            with pytest.raises(EncryptionKeyError, match="key 'k1' cannot be opened") as raised:
                await call
            assert raised.value.key_id == "k1"
        assert (await session.ask("say fine", timeout=10)).text == "fine"


@contextlib.contextmanager
def short_delays(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(handing_back, "MODEL_DELAYS_SECONDS", (1, 1))
        patch.setattr(handing_back, "TOOL_DELAYS_SECONDS", (1,))
        yield


@pytest.mark.parametrize(
    ("script", "last_tool"), [("call write_a!\nrecall", "write_a"), ("call write_external\nrecall", "write_external")]
)
async def test_a_step_on_a_worker_without_the_key_waits_for_one_that_has_it_and_runs_once(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch, script: str, last_tool: str
) -> None:
    right = Encryption({"k1": OLD}, write_with="k1")
    with short_delays(monkeypatch):
        async with engine_in(tmp_path / "data") as engine:
            async with served(engine, right) as session:
                await session.send(script, message_id="m-1")
                (interrupt,) = await pending(session)
            # A Worker without the key gets what is waiting, and a client that has it answers.
            async with (
                AgentHost(flow_with(right), address=engine.address, worker=False) as client,
                AgentHost(flow_with(None), address=engine.address),
            ):
                with pytest.raises(EncryptionKeyError, match=r"a Worker could not serve the call: .*'k1'") as raised:
                    await client.session("s-1").approve(interrupt.interrupt_id)
                assert raised.value.key_id == "k1"
            async with served(engine, right) as session:
                if interrupt.question.kind == "approval":
                    await session.approve(interrupt.interrupt_id)
                else:
                    await session.provide_tool_result(interrupt.interrupt_id, "outside")
                result = await session.wait_for_result("m-1", timeout=20)
    assert f"{last_tool} -> returned" in result.text


class GatedRunner(SecretiveRunner):
    """Holds the call of `write_gate` until the test lets it go."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.ran: list[str] = []

    async def call_tool(self, request: CallToolRequest) -> ToolOutcome:
        self.ran.append(request.call.name)
        if request.call.name == "write_gate":
            await self.gate.wait()
        return await super().call_tool(request)


async def test_tools_that_land_on_a_worker_without_the_key_are_put_off_and_run_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    runner = GatedRunner()
    options = AgentSessionOptions(at_rest=Encryption({"k1": OLD}, write_with="k1"))
    flow = AgentSessionFlow(runner, name="secretive", options=options)

    async def both_put_off() -> bool:
        return caplog.text.count("is put off") >= 2

    with short_delays(monkeypatch):
        async with (
            engine_in(tmp_path) as engine,
            AgentHost(flow, address=engine.address, max_concurrent_tasks=2) as host,
        ):
            session = host.session("s-1")
            await session.start()
            # This Worker runs one Step at a time, so the others go to the one without the key.
            await session.send("call write_gate, write_1, write_2\nrecall", message_id="m-1")
            await wait_for(lambda: gate_is_reached(runner), what="the gate")
            async with AgentHost(flow_with(None), address=engine.address):
                await wait_for(both_put_off, what="two calls that were put off")
            runner.gate.set()
            result = await session.wait_for_result("m-1", timeout=20)
    assert sorted(runner.ran) == ["write_1", "write_2", "write_gate"]
    assert all(f"{name} -> returned" in result.text for name in ("write_1", "write_2"))


async def gate_is_reached(runner: GatedRunner) -> bool:
    return "write_gate" in runner.ran


async def test_a_model_step_without_the_key_is_handed_back_as_one_that_meets_a_newer_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unreadable(context: object) -> None:
        missing = EncryptionKeyError("key 'k1' is missing", key_id="k1")
        raise ValueMappingError("decode", str(missing)) from missing

    monkeypatch.setattr("dex_agents.steps.run_model.SessionEditor", unreadable)
    flow = flow_with(None)
    step = RunModel(SessionServices(flow.runner, flow.options, EventFeed(flow.events, flow.options)))
    context = cast(AsyncContext, SimpleNamespace(attempt=1))
    with pytest.raises(RetryAfterError, match="key 'k1' is missing") as raised:
        await step.execute(context, RunModelInput(turn_id="turn-1", kind="continue"))
    assert raised.value.after_seconds == handing_back.MODEL_DELAYS_SECONDS[0] == 120


def test_what_cannot_be_a_key_is_refused_and_keys_are_never_shown() -> None:
    with pytest.raises(ConfigurationError, match="has 5 bytes: give 32"):
        Encryption({"k": b"short"}, write_with="k")
    with pytest.raises(ConfigurationError, match=r"key id 'a\.b'"):
        Encryption({"a.b": OLD}, write_with="a.b")
    with pytest.raises(ConfigurationError, match="name one of them"):
        Encryption({"k": OLD}, write_with="other")
    assert repr(Encryption({"k": OLD}, write_with="k")) == "Encryption(['k'], write_with='k')"


def test_agents_of_one_host_have_one_encryption() -> None:
    other = AgentSessionFlow(ScriptedRunner(), name="other")
    with pytest.raises(ConfigurationError, match="differ in `at_rest`"):
        session_registry(flow_with(Encryption({"k": OLD}, write_with="k")), other)


@pytest.mark.parametrize("text", ["", "short", "ö" * 5000, "\u0000" * 300])
def test_what_is_sealed_opens_to_the_same_text_and_never_looks_the_same_twice(text: str) -> None:
    encryption = Encryption({"k": OLD}, write_with="k")
    sealed = encryption.seal(text)
    assert encryption.open(sealed) == text
    assert sealed != encryption.seal(text)
    assert sealed.isascii() and '"' not in sealed
    changed = sealed[:-6] + ("A" if sealed[-6] != "A" else "B") + sealed[-5:]
    with pytest.raises(EncryptionKeyError, match="damaged"):
        encryption.open(changed)


def test_what_is_sealed_counts_as_it_is_sealed_towards_a_full_session() -> None:
    message = text_message("user", "The same words again and again. " * 200)
    encryption = Encryption({"k1": OLD}, write_with="k1")

    counted = stored_size(message, AgentSessionOptions(at_rest=encryption))

    # Each sealing differs, but not in its size.
    assert counted == len(encryption.seal(message.stored_json())) + len('""')
    assert counted > stored_size(message, AgentSessionOptions())
