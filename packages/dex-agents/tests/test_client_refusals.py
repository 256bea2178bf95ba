"""What goes wrong, and what a caller is told: each an error of this package, and nothing lost."""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from dex import AsyncClient, BlobCacheConfig, ClientOptions, StopFlowOptions, StopType, open_blob_cache

from dex_agents import AgentHost, AgentSessionClient, AgentSessionOptions, session_registry
from dex_agents.errors import (
    BlankMessageError,
    ConfigurationError,
    EngineUnavailableError,
    InterruptNotPendingError,
    InvalidSessionIdError,
    MessageTooLargeError,
    NoWorkerAvailableError,
    SessionAlreadyExistsError,
    SessionFailedError,
    SessionNotFoundError,
    SessionStoppedError,
)
from dex_agents.session import AgentSession
from support.durable_processes import DurableProcesses
from support.scripted_sessions import another_flow, pending, scripted_flow, scripted_session
from support.waiting import wait_for

VERBS: dict[str, Callable[[AgentSession], Awaitable[object]]] = {
    "send": lambda session: session.send("hello"),
    "ask": lambda session: session.ask("hello", timeout=10),
    "snapshot": lambda session: session.snapshot(),
    "messages": lambda session: session.messages(),
    "events": lambda session: anext(aiter(session.events())),
    "approve": lambda session: session.approve("call-1"),
    "deny": lambda session: session.deny("call-1"),
    "answer_question": lambda session: session.answer_question("call-1", 1),
    "provide_tool_result": lambda session: session.provide_tool_result("call-1", 1),
    "stop": lambda session: session.stop(),
}
READING = {"snapshot", "messages", "events", "stop"}


async def test_every_verb_refuses_an_unknown_session_by_name(tmp_path: Path) -> None:
    async with scripted_session(tmp_path) as session:
        unknown = session.client.session("nobody")
        for verb, call in VERBS.items():
            with pytest.raises(SessionNotFoundError, match="there is no session 'nobody' at 127") as refused:
                await call(unknown)
            assert refused.value.session_id == "nobody", verb


async def test_a_value_that_no_json_holds_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    nothing: Any = object()
    calls: list[Callable[[AgentSession], Awaitable[object]]] = [
        lambda session: session.send("half \ud800"),
        lambda session: session.deny("call-1", reason="half \ud800"),
        lambda session: session.approve("call-1", arguments={"order": nothing}),
        lambda session: session.answer_question("call-1", nothing),
        lambda session: session.provide_tool_result("call-1", nothing),
    ]
    async with scripted_session(tmp_path) as session:
        for call in calls:
            with pytest.raises(ConfigurationError, match="a value cannot be sent, it is no JSON or no Unicode text"):
                await call(session)
        assert (await session.snapshot()).last_sequence == 0


async def test_a_number_that_json_does_not_have_is_refused_instead_of_becoming_null(tmp_path: Path) -> None:
    nan, infinite = float("nan"), float("inf")
    calls: list[Callable[[AgentSession], Awaitable[object]]] = [
        lambda session: session.approve("call-1", arguments={"prices": [1.0, nan]}),
        lambda session: session.answer_question("call-1", infinite),
        lambda session: session.provide_tool_result("call-1", {"price": nan}),
        lambda session: session.update_settings({"temperature": nan}),
        lambda session: session.client.start_session("s-2", settings={"limits": {"top": -infinite}}),
    ]
    async with scripted_session(tmp_path) as session:
        for call in calls:
            with pytest.raises(ConfigurationError, match=r"has the number (nan|-?inf), which JSON does not have"):
                await call(session)
        assert (await session.snapshot()).settings == {}


async def test_every_changing_verb_refuses_a_stopped_session(tmp_path: Path) -> None:
    async with scripted_session(tmp_path) as session:
        await session.stop(reason="enough")
        for verb in sorted(set(VERBS) - READING):
            with pytest.raises(SessionStoppedError, match=r"session 's-1' was stopped \(enough\)") as refused:
                await VERBS[verb](session)
            assert refused.value.reason == "enough"


async def test_a_failed_session_says_why_it_failed(tmp_path: Path) -> None:
    flow = scripted_flow()
    async with AgentHost(flow, directory=tmp_path / "engine") as host:
        session = host.session("s-1")
        await session.start()
        with closing(open_blob_cache(BlobCacheConfig(str(tmp_path / "blobs"), 1024))) as cache:
            async with AsyncClient(session_registry(flow), cache, ClientOptions(host.address)) as operator:
                await operator.stop_flow("s-1", StopFlowOptions(type=StopType.FAIL, reason="the operator gave up"))
        with pytest.raises(SessionFailedError, match="the operator gave up"):
            await session.send("hello")
        assert (await session.snapshot()).lifecycle == "failed"


async def test_bad_session_ids_are_refused_by_every_verb(tmp_path: Path) -> None:
    async with scripted_session(tmp_path) as session:
        for session_id in ("", "a/b", "a\nb", "x" * 201):
            with pytest.raises(InvalidSessionIdError):
                session.client.session(session_id)
            with pytest.raises(InvalidSessionIdError):
                await session.client.start_session(session_id)
            with pytest.raises(InvalidSessionIdError):
                await session.client.ask(session_id, "hello")


async def test_blank_and_oversized_messages_are_refused_and_nothing_is_sent(tmp_path: Path) -> None:
    async with scripted_session(tmp_path) as session:
        for content in ("", " \u2003\n", "\u200b\ufeff \u2060", "\x00"):
            with pytest.raises(BlankMessageError):
                await session.send(content)
        with pytest.raises(MessageTooLargeError, match="at most 524,288"):
            await session.ask("x" * 600_000)
        snapshot = await session.snapshot()
        assert (snapshot.queued_messages, snapshot.last_sequence) == (0, 0)


async def test_an_interrupt_is_refused_with_the_reason_that_it_waits_for_nothing(tmp_path: Path) -> None:
    async with scripted_session(tmp_path) as session:
        for interrupt_id in ("call-99", "a/b", ""):
            with pytest.raises(InterruptNotPendingError) as unknown:
                await session.approve(interrupt_id)
            assert (unknown.value.reason, unknown.value.interrupt_id) == ("unknown", interrupt_id)

        asking = asyncio.create_task(session.ask("call write_a!\nsay done", timeout=10))
        (approval,) = await pending(session)
        with pytest.raises(ConfigurationError, match="is of kind 'approval': approve or deny it"):
            await session.answer_question(approval.interrupt_id, "yes")
        await session.deny(approval.interrupt_id, reason="not today")
        await asking
        with pytest.raises(InterruptNotPendingError) as answered:
            await session.approve(approval.interrupt_id)
        assert answered.value.reason == "answered"


async def test_an_expired_approval_is_refused_as_expired(tmp_path: Path) -> None:
    options = AgentSessionOptions(interrupt_deadline=timedelta(seconds=1))
    async with scripted_session(tmp_path, options=options) as session:
        await session.ask("call write_a!\nsay done", timeout=10)
        (interrupt,) = (await session.snapshot()).interrupts
        with pytest.raises(InterruptNotPendingError, match="its deadline has passed") as refused:
            await session.approve(interrupt.interrupt_id)
        assert refused.value.reason == "expired"


async def test_without_a_worker_calls_end_in_a_bounded_wait_and_lose_nothing(tmp_path: Path) -> None:
    async with AgentHost(scripted_flow(), directory=tmp_path, worker=False) as host:
        session = host.session("s-1")
        assert await session.start(title="early", user="eve") is True
        page = await host.client().list_sessions()
        assert [(found.session_id, found.lifecycle) for found in page.sessions] == [("s-1", "running")]

        started = time.monotonic()
        calls = [session.send("say hi", message_id="m-1"), session.snapshot(), session.messages()]
        for failure in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(failure, NoWorkerAvailableError), failure
            assert (failure.agent, failure.session_id, failure.address) == ("scripted", "s-1", host.address)
            assert str(failure).startswith(
                f"no Worker of agent 'scripted' answered for session 's-1' at {host.address}"
            )
        assert time.monotonic() - started < 21

    async with AgentHost(scripted_flow(), directory=tmp_path) as host:
        assert (await host.session("s-1").ask("say hi", message_id="m-1", timeout=10)).text == "hi"


async def test_the_id_of_another_agents_session_is_refused(tmp_path: Path) -> None:
    async with AgentHost(scripted_flow(), another_flow(), directory=tmp_path) as host:
        await host.session("s-1", "scripted").start()
        stranger = host.session("s-1", "another")
        with pytest.raises(SessionAlreadyExistsError, match="belongs to agent 'scripted', not to 'another'"):
            await stranger.start()
        for verb in ("snapshot", "events", "stop"):
            with pytest.raises(SessionNotFoundError, match="belongs to agent 'scripted'"):
                await VERBS[verb](stranger)
        assert (await host.session("s-1", "scripted").snapshot()).lifecycle == "running"


async def test_no_server_at_the_address_is_told_with_the_address() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    with pytest.raises(EngineUnavailableError, match=f"no Dex Server answers at {address}"):
        async with AgentSessionClient(scripted_flow(), address=address):
            raise AssertionError("unreachable")


async def test_a_call_fails_while_the_server_is_away_and_works_when_it_is_back(tmp_path: Path) -> None:
    with DurableProcesses(tmp_path, "support.scripted_sessions:scripted_flow", {}) as processes:
        processes.start_engine()
        async with AgentSessionClient(scripted_flow(), address=processes.address) as client:
            await client.start_session("s-1")
            processes.kill_engine()
            with pytest.raises(EngineUnavailableError, match=processes.address):
                await client.start_session("s-2")
            processes.start_engine()

            async def started_again() -> bool:
                try:
                    return await client.start_session("s-2")
                except EngineUnavailableError:
                    return False

            assert await wait_for(started_again, what="the channel's next connection", seconds=10)
            page = await client.list_sessions()
            assert {found.session_id for found in page.sessions} == {"s-1", "s-2"}


async def test_a_client_outside_its_block_says_so() -> None:
    client = AgentSessionClient(scripted_flow(), address="127.0.0.1:1")
    with pytest.raises(ConfigurationError, match="use it inside `async with`"):
        await client.start_session("s-1")


@pytest.mark.parametrize(("after_sequence", "limit"), [(-1, 1), (0, 0), (0, 201)])
async def test_page_numbers_out_of_range_are_refused(tmp_path: Path, after_sequence: int, limit: int) -> None:
    client = AgentSessionClient(scripted_flow(), address="127.0.0.1:1")
    with pytest.raises(ConfigurationError, match="give 0 or more, and 1 to 200"):
        await client.list_agent_messages("s-1", after_sequence=after_sequence, limit=limit)
