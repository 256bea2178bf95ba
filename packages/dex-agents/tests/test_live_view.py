"""What a view shows while events and snapshots arrive in any order."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from dex_agents._client.live_view import LiveView
from dex_agents.events import AgentEvent, AgentEventType
from dex_agents.messages import SavedMessage, text_message
from dex_agents.snapshot import AgentSnapshot, Interrupt, ToolCallSnapshot
from dex_agents.tools import Question


@dataclass
class Session:
    """A session in small: one Step at a time, each of which says something and may be lost before it is recorded."""

    events: list[AgentEvent] = field(default_factory=lambda: list[AgentEvent]())
    messages: list[SavedMessage] = field(default_factory=lambda: list[SavedMessage]())
    turn_number: int = 0
    is_running: bool = False
    step_number: int = 0
    executions: int = 0
    attempt: int = 1
    sequence: int = 0
    said: str = ""

    @property
    def turn_id(self) -> str:
        return f"turn-{self.turn_number}"

    def emit(self, event_type: AgentEventType, *, step: str = "RunModel", **fields: str) -> None:
        self.sequence += 1
        self.events.append(
            AgentEvent.model_validate(
                {
                    "type": event_type,
                    "turn_id": self.turn_id,
                    "step_id": f"{step}-{self.executions}",
                    "attempt": self.attempt,
                    "sequence": self.sequence,
                    "step_number": self.step_number + 1 if step == "RunModel" else 0,
                    **fields,
                }
            )
        )

    def next_step(self) -> None:
        self.executions, self.attempt, self.sequence, self.said = self.executions + 1, 1, 0, ""

    def begin(self) -> None:
        if self.is_running:
            return
        self.turn_number += 1
        self.next_step()
        self.emit(AgentEventType.TURN_STARTED, step="AwaitUserMessage")
        self.save("user", f"question {self.turn_number}")
        self.is_running = True
        self.next_step()

    def say(self) -> None:
        if self.is_running:
            piece = f"<{self.executions}.{self.attempt}.{self.sequence}>"
            self.said += piece
            self.emit(AgentEventType.TEXT_DELTA, text=piece)

    def crash(self) -> None:
        if self.is_running:
            self.attempt, self.sequence, self.said = self.attempt + 1, 0, ""
            self.emit(AgentEventType.ATTEMPT_SUPERSEDED)

    def record(self) -> None:
        if self.is_running and self.said:
            self.save("assistant", self.said)
            self.step_number += 1
            self.next_step()

    def end(self) -> None:
        if self.is_running:
            self.emit(AgentEventType.TURN_COMPLETED)
            self.save("assistant", self.said)
            self.step_number += 1
            self.is_running = False
            self.next_step()

    def save(self, role: str, text: str) -> None:
        message = text_message("user" if role == "user" else "assistant", text)
        number = len(self.messages) + 1
        self.messages.append(SavedMessage(sequence=number, turn_id=self.turn_id, saved_at=0, message=message))

    def snapshot(self) -> AgentSnapshot:
        return AgentSnapshot(
            session_id="s",
            status="running_model" if self.is_running else "awaiting_user_message",
            turn_id=self.turn_id if self.is_running else "",
            turn_number=self.turn_number,
            step_number=self.step_number,
            messages=tuple(self.messages),
        )

    @property
    def transcript(self) -> str:
        """All that was said and counts, recorded or not."""
        return "".join(saved.message.text for saved in self.messages) + self.said


def shown(live: LiveView) -> str:
    return "".join(saved.message.text for saved in live.view.messages) + live.view.live_text


ACTIONS = st.sampled_from(["begin", "say", "say", "crash", "record", "end", "read", "read", "look"])


@given(st.lists(ACTIONS, max_size=60), st.integers(0, 30))
@settings(max_examples=300, deadline=None)
def test_nothing_is_missing_and_nothing_is_doubled_wherever_a_client_looks_and_reads(
    actions: list[str], joined_at: int
) -> None:
    session = Session()
    live: LiveView | None = None
    position = 0
    for number, action in enumerate(actions):
        if action == "read" and live is not None and position < len(session.events):
            live.apply(session.events[position])
            position += 1
        elif action == "look" and live is not None:
            live.refresh(session.snapshot())
        elif action not in ("read", "look"):
            getattr(session, action)()
        if live is None and number >= joined_at:
            live = LiveView(session.snapshot())
        if live is not None:
            # A prefix of the truth: a client may be behind, but shows nothing twice and no lost text among the saved.
            recorded = "".join(saved.message.text for saved in live.view.messages)
            assert shown(live).startswith(recorded)
            assert not live.view.live_text or live.view.live_text not in recorded
    live = live or LiveView(session.snapshot())
    for event in session.events[position:]:
        live.apply(event)
    live.refresh(session.snapshot())

    assert shown(live) == session.transcript
    assert live.view.turn_id == (session.turn_id if session.is_running else "")
    assert all(text.is_complete for text in live.view.live)
    assert not live.wants_snapshot


def model_event(event_type: AgentEventType, sequence: int, *, attempt: int = 1, **fields: str) -> AgentEvent:
    return AgentEvent.model_validate(
        {
            "type": event_type,
            "turn_id": "turn-1",
            "step_id": "RunModel-1",
            "step_number": 1,
            "sequence": sequence,
            "attempt": attempt,
            **fields,
        }
    )


def tool_event(event_type: AgentEventType, sequence: int, *, attempt: int = 1, **fields: str) -> AgentEvent:
    event = model_event(event_type, sequence, attempt=attempt, call_id="call-1", **fields)
    return event.model_copy(update={"step_id": "CallTool-1", "step_number": 0})


RUNNING = AgentSnapshot(session_id="s", status="running_model", turn_id="turn-1", turn_number=1)
CALLING = RUNNING.model_copy(
    update={
        "status": "running_tools",
        "step_number": 1,
        "tool_calls": (
            ToolCallSnapshot(call_id="call-1", turn_id="turn-1", name="look", status="pending", idempotency_key="k"),
        ),
    }
)


def test_a_gap_marks_the_text_and_asks_for_a_look() -> None:
    live = LiveView(RUNNING)
    live.apply(model_event(AgentEventType.TEXT_DELTA, 1, text="one "))
    assert not live.wants_snapshot

    live.apply(model_event(AgentEventType.TEXT_DELTA, 3, text="three"))

    assert live.wants_snapshot
    live.refresh(RUNNING)
    assert not live.wants_snapshot
    assert [(text.text, text.is_complete) for text in live.view.live] == [("one three", False)]


def test_a_lost_attempt_that_still_talks_is_not_heard() -> None:
    live = LiveView(RUNNING)
    live.apply(model_event(AgentEventType.TEXT_DELTA, 1, text="lost"))
    live.apply(model_event(AgentEventType.ATTEMPT_SUPERSEDED, 1, attempt=2))
    live.apply(model_event(AgentEventType.TEXT_DELTA, 2, text="zombie"))
    live.apply(model_event(AgentEventType.TEXT_DELTA, 2, attempt=2, text="good"))

    assert live.view.live_text == "good"


def test_calls_and_questions_of_a_superseded_attempt_are_gone() -> None:
    live = LiveView(RUNNING)
    live.apply(model_event(AgentEventType.TOOL_CALL_REQUESTED, 1, call_id="call-1", name="pay"))
    live.apply(model_event(AgentEventType.INTERRUPT_REQUESTED, 2, call_id="call-1", interrupt_id="call-1"))
    assert [(call.name, call.status) for call in live.view.tool_calls] == [("pay", "awaiting_approval")]
    assert live.wants_snapshot

    live.apply(model_event(AgentEventType.ATTEMPT_SUPERSEDED, 1, attempt=2))
    live.apply(model_event(AgentEventType.TOOL_CALL_REQUESTED, 2, attempt=2, call_id="call-1", name="look"))

    assert [(call.name, call.status) for call in live.view.tool_calls] == [("look", "pending")]
    assert not live.wants_snapshot


def test_an_end_that_was_not_recorded_is_taken_back() -> None:
    live = LiveView(CALLING)
    live.apply(tool_event(AgentEventType.TOOL_CALL_STARTED, 1))
    live.apply(tool_event(AgentEventType.TOOL_CALL_FINISHED, 2, status="ok"))
    assert live.view.tool_calls[0].status == "ok"

    live.apply(tool_event(AgentEventType.ATTEMPT_SUPERSEDED, 1, attempt=2))
    live.apply(tool_event(AgentEventType.TOOL_CALL_STARTED, 2, attempt=2))

    assert live.view.tool_calls[0].status == "running"


def test_what_a_tool_reports_is_shown_until_its_end_and_a_recorded_end_stays() -> None:
    live = LiveView(CALLING)
    live.apply(tool_event(AgentEventType.TOOL_CALL_STARTED, 1))
    for number in range(2, 5):
        event = tool_event(AgentEventType.TOOL_CALL_PROGRESS, number).model_copy(update={"data": number})
        live.apply(event)

    assert live.view.tool_calls[0].progress == 4
    assert live.kept_events == 2
    (call,) = CALLING.tool_calls
    ended = CALLING.model_copy(update={"tool_calls": (call.model_copy(update={"status": "ok"}),)})
    live.refresh(ended)
    live.apply(tool_event(AgentEventType.TOOL_CALL_PROGRESS, 5))
    assert live.view.tool_calls[0].status == "ok"


def test_an_answered_question_is_not_shown_as_waiting() -> None:
    question = Question(id="approval", kind="approval", prompt="May it?")
    asked = Interrupt(interrupt_id="call-1", turn_id="turn-1", call_id="call-1", question=question)
    live = LiveView(CALLING.model_copy(update={"status": "awaiting_approval", "interrupts": (asked,)}))
    assert live.view.interrupts == (asked,)

    live.apply(tool_event(AgentEventType.INTERRUPT_RESOLVED, 1, interrupt_id="call-1", status="answered"))

    assert live.view.interrupts == ()
    assert live.view.status == "running_tools"
