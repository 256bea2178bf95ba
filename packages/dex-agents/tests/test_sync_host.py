"""The facade for programs without an event loop."""

import inspect
import threading
import time
from pathlib import Path

import pytest

from dex_agents import AgentHost
from dex_agents.errors import (
    AnswerTimeoutError,
    ConfigurationError,
    EngineStartError,
    OutcomeNotUnknownError,
    SessionNotFoundError,
    TurnFailedError,
)
from dex_agents.session import AgentSession
from dex_agents.sync import SyncAgentHost, SyncAgentSession
from support.scripted_sessions import scripted_flow


def test_a_session_is_used_without_an_event_loop(tmp_path: Path) -> None:
    with SyncAgentHost(AgentHost(scripted_flow(), directory=tmp_path)) as host:
        session = host.session("s-1")
        assert session.start(title="sync") is True
        assert session.ask("say hello", timeout=10).text == "hello"
        assert session.ask("say typed", output_type=dict[str, str], timeout=10) == {"said": "typed"}

        with pytest.raises(AnswerTimeoutError) as late:
            session.ask("call write_a!\nsay charged", timeout=1)
        (approval,) = session.snapshot().pending_interrupts
        session.approve(approval.interrupt_id, answered_by="eve")
        assert session.ask("call write_a!\nsay charged", message_id=late.value.message_id, timeout=10).text == "charged"

        assert session.send("call write_b!\nsay not").accepted
        session.deny(next_approval(session), reason="no")
        assert session.messages(limit=1).messages[0].message.text == "say hello"
        assert session.stop() is True


def next_approval(session: SyncAgentSession) -> str:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        if pending := session.snapshot().pending_interrupts:
            return pending[0].interrupt_id
    raise AssertionError("no approval is pending within 5 s")


def test_a_session_is_followed_from_a_thread_without_a_loop(tmp_path: Path) -> None:
    with SyncAgentHost(AgentHost(scripted_flow(), directory=tmp_path)) as host:
        session = host.session("s-1")
        session.start()
        session.send("say hello")
        for update in session.follow():
            if [saved.message.text for saved in update.view.messages] == ["say hello", "hello"]:
                break
        left_open = session.follow()
        next(left_open)
        session.stop()
        assert [update.view.status for update in session.follow()] == ["stopped"]
    left_open.close()


def test_the_facade_has_every_verb_of_a_session_with_the_same_parameters() -> None:
    for name, verb in inspect.getmembers(AgentSession, inspect.isfunction):
        if not name.startswith("_"):
            # As text: each module has a type variable of its own.
            wanted, got = (inspect.signature(each).parameters for each in (verb, getattr(SyncAgentSession, name)))
            assert list(map(str, got.values())) == list(map(str, wanted.values())), name


def test_a_turn_is_controlled_without_an_event_loop(tmp_path: Path) -> None:
    with SyncAgentHost(AgentHost(scripted_flow(), directory=tmp_path)) as host:
        session = host.session("s-1")
        session.start()
        assert session.update_settings({"plan": "gold"}) == {"plan": "gold"}

        session.send("call write_a!\nsay never", message_id="m-1")
        approval = next_approval(session)
        with pytest.raises(ConfigurationError, match="approve or deny it"):
            session.answer_question(approval, "yes")
        with pytest.raises(ConfigurationError, match="approve or deny it"):
            session.provide_tool_result(approval, "done")
        assert session.interrupt("say instead", message_id="m-3") == "m-3"
        assert session.wait_for_result("m-3", timeout=10).text == "instead"
        with pytest.raises(TurnFailedError, match="interrupted by the user"):
            session.wait_for_result("m-1", timeout=10)
        assert session.steer("say steered", message_id="m-2").accepted
        assert session.wait_for_result("m-2", timeout=10).text == "steered"
        assert session.cancel_turn() is False
        with pytest.raises(OutcomeNotUnknownError):
            session.resolve_unknown_outcome("call-9", happened=True)

        assert "instead" in [saved.message.text for saved in session.iter_messages()]
        assert next(session.events()).event.turn_id == "turn-1"


def test_several_threads_share_one_host(tmp_path: Path) -> None:
    answers: dict[str, str] = {}

    def converse(session_id: str) -> None:
        session = host.session(session_id)
        session.start()
        answers[session_id] = session.ask(f"say I am {session_id}", timeout=20).text

    with SyncAgentHost(AgentHost(scripted_flow(), directory=tmp_path)) as host:
        threads = [threading.Thread(target=converse, args=(f"s-{number}",)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert answers == {f"s-{number}": f"I am s-{number}" for number in range(4)}


def test_errors_arrive_in_the_calling_thread(tmp_path: Path) -> None:
    with SyncAgentHost(AgentHost(scripted_flow(), directory=tmp_path)) as host:
        with pytest.raises(SessionNotFoundError):
            host.session("nobody").snapshot()
        with (
            pytest.raises(EngineStartError, match="another engine uses"),
            SyncAgentHost(AgentHost(scripted_flow(), directory=tmp_path)),
        ):
            raise AssertionError("unreachable")


def test_a_host_that_was_left_says_so(tmp_path: Path) -> None:
    with SyncAgentHost(AgentHost(scripted_flow(), directory=tmp_path)) as host:
        session = host.session("s-1")
    with pytest.raises(ConfigurationError, match="the host is not running"):
        session.start()
