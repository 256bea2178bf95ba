"""The application's say in what people see of a session."""

from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from traceback import format_exception
from typing import cast

import pytest

from dex_agents import AgentHost, AgentSessionOptions
from dex_agents.errors import WorkerRaisedError
from dex_agents.events import AgentEvent
from dex_agents.messages import SavedMessage, text_message
from dex_agents.session import AgentSession
from dex_agents.snapshot import AgentSnapshot
from support.scripted_sessions import scripted_flow, scripted_session

SECRET = "4111-1111"


async def events_of_turn(session: AgentSession) -> list[AgentEvent]:
    found: list[AgentEvent] = []
    events = session.events()
    async with aclosing(events):
        async for streamed in events:
            found.append(streamed.event)
            if streamed.event.type == "turn_completed":
                break
    return found


def masked_event(event: AgentEvent) -> AgentEvent | None:
    if event.type == "tool_call_requested":
        return None
    if event.type == "tool_call_started":
        raise ValueError(f"cannot redact {event.name}")
    return event.model_copy(update={"text": event.text.replace(SECRET, "****")})


def masked_message(saved: SavedMessage) -> SavedMessage:
    masked = text_message(saved.message.role, saved.message.text.replace(SECRET, "****"))
    return saved.model_copy(update={"message": masked})


def masked_snapshot(snapshot: AgentSnapshot) -> AgentSnapshot:
    return snapshot.model_copy(update={"settings": {}})


async def test_events_messages_and_snapshots_leave_the_worker_as_the_application_lets_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = AgentSessionOptions(
        redact_event=masked_event, redact_message=masked_message, redact_snapshot=masked_snapshot
    )
    async with scripted_session(tmp_path, options=options) as session:
        await session.update_settings({"card": SECRET})
        result = await session.ask(f"call read_a\nsay {SECRET}", timeout=10)
        events = await events_of_turn(session)
        snapshot = await session.snapshot()
        page = await session.messages()
        async with aclosing(session.follow()) as updates:
            view = (await anext(updates)).view

    assert result.text == SECRET  # the caller's own answer
    said = "".join(event.model_dump_json() for event in events)
    assert SECRET not in said
    assert [event.type for event in events if event.step_id.startswith(("RunModel-1", "CallTool"))] == [
        "redacted",
        "redacted",
        "tool_call_finished",
    ]
    for step_id in {event.step_id for event in events}:
        assert next(event.sequence for event in events if event.step_id == step_id) == 1
    for document in (snapshot, page, view.snapshot):
        assert SECRET not in document.model_dump_json()
        assert "****" in document.model_dump_json()
    assert snapshot.settings == {}
    assert "redact_event raised ValueError" in caplog.text
    assert "cannot redact" not in caplog.text


def raise_what_it_cannot_redact(seen: SavedMessage | AgentSnapshot) -> None:
    raise KeyError(f"no rule for {seen}")


def nothing(seen: SavedMessage | AgentSnapshot) -> None:
    del seen


@pytest.mark.parametrize(
    ("redact", "problem"), [(raise_what_it_cannot_redact, "raised KeyError"), (nothing, "returned NoneType")]
)
async def test_a_placeholder_stands_for_a_message_that_cannot_be_redacted_and_the_others_get_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, redact: Callable[[SavedMessage], None], problem: str
) -> None:
    def redact_what_is_secret(saved: SavedMessage) -> SavedMessage | None:
        return redact(saved) if SECRET in saved.message.text else saved

    options = AgentSessionOptions(redact_message=cast("Callable[[SavedMessage], SavedMessage]", redact_what_is_secret))
    async with scripted_session(tmp_path, options=options) as session:
        await session.ask(f"say {SECRET}", timeout=10)
        await session.ask("say hello", timeout=10)
        await session.fork("s-2")
        async with aclosing(session.follow()) as updates:
            view = (await anext(updates)).view
        documents = [
            messages
            for each in (session, session.client.session("s-2"))
            for messages in ((await each.snapshot()).messages, (await each.messages()).messages)
        ]

    for messages in (*documents, view.snapshot.messages):
        assert [(saved.sequence, saved.message.role, saved.message.text) for saved in messages] == [
            (1, "user", "this message could not be redacted"),
            (2, "assistant", "this message could not be redacted"),
            (3, "user", "say hello"),
            (4, "assistant", "hello"),
        ]
    assert f"redact_message {problem}" in caplog.text
    assert SECRET not in caplog.text


async def test_a_fork_keeps_what_redaction_hides(tmp_path: Path) -> None:
    options = AgentSessionOptions(redact_message=masked_message)
    async with scripted_session(tmp_path, options=options) as session:
        await session.ask(f"say {SECRET}", timeout=10)
        await session.fork("s-2")
        assert "****" in (await session.client.session("s-2").messages()).messages[0].message.text
    # Without the redaction, what is stored is seen.
    async with AgentHost(scripted_flow(), directory=tmp_path) as host:
        page = await host.session("s-2").messages()

    assert [saved.message.text for saved in page.messages] == [f"say {SECRET}", SECRET]


@pytest.mark.parametrize(
    ("redact", "problem"), [(raise_what_it_cannot_redact, "raised KeyError"), (nothing, "returned NoneType")]
)
async def test_a_snapshot_that_cannot_be_redacted_does_not_get_out(
    tmp_path: Path, redact: Callable[[AgentSnapshot], None], problem: str
) -> None:
    options = AgentSessionOptions(redact_snapshot=cast("Callable[[AgentSnapshot], AgentSnapshot]", redact))
    async with scripted_session(tmp_path, options=options) as session:
        with pytest.raises(WorkerRaisedError, match=f"redact_snapshot {problem}, so the snapshot is kept") as raised:
            await session.snapshot()
    shown = "".join(format_exception(raised.value))
    assert "no rule" not in shown
