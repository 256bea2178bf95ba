"""Asking and waiting for answers."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path

import pytest
from pydantic import BaseModel

from dex_agents import AgentHost
from dex_agents.errors import (
    AnswerTimeoutError,
    ConfigurationError,
    EngineUnavailableError,
    MessageIdReusedError,
    NoWorkerAvailableError,
    SessionStoppedError,
    TurnFailedError,
)
from dex_agents.session import AgentSession
from support.durable_processes import DurableProcesses
from support.scripted_sessions import pending, scripted_flow, scripted_session
from support.waiting import wait_for


class Said(BaseModel):
    """What the scripted agent's answers look like as data."""

    said: str


@pytest.fixture
async def session(tmp_path: Path) -> AsyncGenerator[AgentSession]:
    async with scripted_session(tmp_path / "engine") as session:
        yield session


async def test_the_typed_output_is_returned_as_the_type_that_was_asked_for(session: AgentSession) -> None:
    assert await session.ask("say hello", output_type=Said, timeout=10) == Said(said="hello")


async def test_an_output_of_another_type_is_refused_without_showing_its_content(session: AgentSession) -> None:
    with pytest.raises(ConfigurationError, match="is not of output_type <class 'int'>") as refused:
        await session.ask("say swordfish", output_type=int, timeout=10)
    assert "swordfish" not in str(refused.value)


async def test_a_failed_turn_raises_and_the_next_message_is_answered(session: AgentSession) -> None:
    with pytest.raises(TurnFailedError, match=r"turn-1 of session 's-1' failed: the script fails"):
        await session.ask("fail", timeout=10)
    assert (await session.ask("say better", timeout=10)).text == "better"


async def test_an_ask_that_ran_out_of_time_can_be_waited_on(session: AgentSession) -> None:
    with pytest.raises(AnswerTimeoutError, match="its turn goes on") as late:
        await session.ask("call write_a!\nsay done", timeout=1)
    assert isinstance(late.value, TimeoutError)
    (approval,) = await pending(session)

    waiting = asyncio.create_task(session.wait_for_result(late.value.message_id, timeout=10))
    repeated = asyncio.create_task(session.ask("call write_a!\nsay done", message_id=late.value.message_id, timeout=10))
    await session.approve(approval.interrupt_id)

    assert (await waiting).text == "done"
    assert (await repeated).turn_id == "turn-1"


async def test_waiting_for_a_message_that_was_never_sent_says_that_nobody_knows_it(session: AgentSession) -> None:
    with pytest.raises(AnswerTimeoutError, match="it knows no message 'm-9', which was never sent or is too old"):
        await session.wait_for_result("m-9", timeout=0.1)


async def test_waiting_for_a_message_behind_the_running_turn_says_that_it_waits(session: AgentSession) -> None:
    await session.send("call write_a!\nsay done")
    await session.send("say later", message_id="m-2")
    with pytest.raises(AnswerTimeoutError, match="it waits behind the running turn"):
        await session.wait_for_result("m-2", timeout=0.3)


async def test_the_results_of_a_stopped_session_are_still_given(session: AgentSession) -> None:
    answer = await session.ask("say hello", message_id="m-1", timeout=10)
    await session.send("call write_a!\nsay never", message_id="m-2")
    await session.send("say later", message_id="m-3")
    await pending(session)
    await session.stop(reason="enough")

    assert await session.wait_for_result("m-1", timeout=10) == answer
    for message_id in ("m-2", "m-3", "m-9"):
        with pytest.raises(SessionStoppedError, match="enough"):
            await session.wait_for_result(message_id, timeout=10)


async def test_an_ask_that_no_worker_takes_in_time_names_the_missing_worker(tmp_path: Path) -> None:
    async with AgentHost(scripted_flow(), directory=tmp_path, worker=False) as host:
        session = host.session("s-1")
        await session.start()
        with pytest.raises(
            AnswerTimeoutError, match=r"no Worker of agent 'scripted' at 127.* ask again with message_id="
        ):
            await session.ask("say hello", timeout=0.1)


async def test_a_timeout_that_is_no_positive_number_is_refused_before_anything_is_sent(session: AgentSession) -> None:
    for timeout in (-1, 0, float("nan")):
        with pytest.raises(ConfigurationError, match="give a positive number of seconds"):
            await session.ask("say hello", timeout=timeout)
    assert (await session.snapshot()).last_sequence == 0


async def test_twenty_sends_at_once_with_one_message_id_are_one_message(session: AgentSession) -> None:
    receipts = await asyncio.gather(*(session.send("say once", message_id="m-1") for _ in range(20)))

    assert [receipt.repeated for receipt in receipts].count(False) == 1
    assert (await session.wait_for_result("m-1", timeout=10)).turn_id == "turn-1"
    assert [message.message.text async for message in session.iter_messages()] == ["say once", "once"]


async def test_a_message_id_that_belongs_to_another_message_is_refused(session: AgentSession) -> None:
    assert (await session.ask("say one", message_id="m-1", timeout=10)).text == "one"
    await session.send("call write_a!\nsay done", message_id="m-2")
    await session.send("say three", message_id="m-3")
    await session.steer("hurry", message_id="m-4")

    calls = [
        session.ask("say two", message_id="m-1", timeout=10),
        session.send("say four", message_id="m-2"),
        session.send("say four", message_id="m-3"),
        session.steer("slow down", message_id="m-4"),
    ]
    for refused in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(refused, MessageIdReusedError), refused
        assert "an id stands for one message" in str(refused)

    assert (await session.ask("say one", message_id="m-1", timeout=10)).turn_id == "turn-1"
    assert (await session.send("say three", message_id="m-3")).repeated
    assert (await session.snapshot()).queued_messages == 1


async def test_an_answer_is_waited_for_through_the_death_of_engine_and_worker(tmp_path: Path) -> None:
    with DurableProcesses(tmp_path, "support.scripted_sessions:scripted_flow", {}) as processes:
        processes.start_engine()
        processes.start_worker()
        async with AgentHost(scripted_flow(), address=processes.address, worker=False) as host:
            session = host.session("s-1")
            await session.start()
            asking = asyncio.create_task(session.ask("call write_a!\nsay survived", timeout=50))
            await pending_through_restarts(session)
            processes.kill_and_restart()
            await session.approve(await pending_through_restarts(session))

            assert (await asking).text == "survived"


async def pending_through_restarts(session: AgentSession) -> str:
    """Wait for the approval while processes start."""

    async def check() -> str | None:
        with suppress(EngineUnavailableError, NoWorkerAvailableError):
            interrupts = (await session.snapshot()).pending_interrupts
            return interrupts[0].interrupt_id if interrupts else None
        return None

    return await wait_for(check, what="the pending approval", seconds=30)
