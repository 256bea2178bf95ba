"""AgentEvents: the live feed of a session. Best effort, and never the record.

A client that missed events reloads the snapshot and reads on. On `turn_completed` or `turn_failed` it replaces the live
text of the turn by the saved messages. `AgentSession.follow` does both.

`turn_id`, `step_id`, `attempt` and `sequence` together name one event of a session for ever.
"""

from enum import StrEnum

from pydantic import JsonValue

from dex_agents._stored import Stored

EVENT_STREAM_NAME = "AgentEvents"


class AgentEventType(StrEnum):
    """The kinds of events. A client ignores kinds that it does not know."""

    TURN_STARTED = "turn_started"
    ATTEMPT_SUPERSEDED = "attempt_superseded"
    TEXT_DELTA = "text_delta"
    REASONING_DELTA = "reasoning_delta"
    TOOL_CALL_REQUESTED = "tool_call_requested"
    TOOL_CALL_STARTED = "tool_call_started"
    TOOL_CALL_PROGRESS = "tool_call_progress"
    TOOL_CALL_FINISHED = "tool_call_finished"
    INTERRUPT_REQUESTED = "interrupt_requested"
    INTERRUPT_RESOLVED = "interrupt_resolved"
    CONTEXT_COMPACTED = "context_compacted"
    SESSION_FILLING = "session_filling"
    TURN_COMPLETED = "turn_completed"
    TURN_FAILED = "turn_failed"
    REDACTED = "redacted"


class AgentEvent(Stored):
    """One event.

    Attributes:
        type: An `AgentEventType`, or a word of a newer version.
        turn_id: The turn, for example `turn-3`.
        step_id: The Step execution that wrote it, for example `RunModel-5`.
        attempt: The attempt of that Step; what an earlier attempt of the same Step said is superseded.
        sequence: Counts the events of one attempt, from 1 and without gaps: a gap means that events were lost.
        step_number: Of a model Step: the snapshot's `step_number` once this Step is recorded; else 0.
        superseded_attempt: Of `attempt_superseded`: nothing counts that this attempt of the Step, and those before it,
            said.
        owner: The agent or branch; empty where there is only one.
        text: A delta, or an error of at most 2,000 characters.
        call_id: The session's id of the tool call.
        name: The tool's name.
        status: Of a finished call: `ok`, `error`, `denied`, `failed`, `outcome_unknown`, `not_run`.
        interrupt_id: What to answer.
        data: Arguments, progress or the question; left out when it is larger than 8 KiB.
    """

    version: int = 1
    type: str
    turn_id: str
    step_id: str = ""
    attempt: int = 1
    sequence: int = 0
    step_number: int = 0
    superseded_attempt: int = 0
    owner: str = ""
    text: str = ""
    call_id: str = ""
    name: str = ""
    status: str = ""
    interrupt_id: str = ""
    data: JsonValue = None
