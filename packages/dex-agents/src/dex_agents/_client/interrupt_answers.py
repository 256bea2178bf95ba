"""Answers approvals, questions and external calls, and says why an answer was not taken."""

import time
from typing import TYPE_CHECKING, Final, Literal, assert_never

from dex import RPCInvokeOptions
from pydantic import JsonValue

from dex_agents._client.connection import Connection
from dex_agents._client.service_errors import check_json, raised_by_worker, refused_values
from dex_agents._storage.limits import MAX_BATCH_BYTES
from dex_agents._storage.schema import INTERRUPTS
from dex_agents.errors import (
    AnswerNotValidError,
    AnswerTooLargeError,
    ConfigurationError,
    DexAgentsError,
    InterruptNotPendingError,
)
from dex_agents.snapshot import Interrupt, InterruptAnswer

if TYPE_CHECKING:
    from dex_agents.session_flow import AgentSessionFlow

InterruptKind = Literal["approval", "answer", "external_result"]

_VERBS: Final[dict[InterruptKind, str]] = {
    "approval": "approve or deny it",
    "answer": "use answer_question",
    "external_result": "use provide_tool_result",
}


def answer_of(interrupt_id: str, **fields: JsonValue) -> InterruptAnswer:
    """Build an answer from what a caller gave.

    Raises:
        ConfigurationError: It has a value that no JSON holds, such as NaN.
    """
    for name, value in fields.items():
        check_json(f"{name} for {interrupt_id!r}", value)
    with refused_values():
        return InterruptAnswer.model_validate({"interrupt_id": interrupt_id, **fields})


class InterruptAnswers:
    """Sends answers to one agent's sessions."""

    def __init__(self, flow: "AgentSessionFlow", connection: Connection) -> None:
        self._flow = flow
        self._connection = connection

    async def give(self, session_id: str, kind: InterruptKind, answer: InterruptAnswer) -> None:
        """Give an answer; a second one never applies.

        Raises:
            InterruptNotPendingError: It was not taken.
            AnswerNotValidError: It does not match what was asked; nothing is used up.
            ConfigurationError: The interrupt is of another kind, or the answer has what no JSON holds.
        """
        with refused_values():
            size = answer.size_in_bytes()
        if size > MAX_BATCH_BYTES:
            raise AnswerTooLargeError(
                f"the answer has {size} bytes, more than {MAX_BATCH_BYTES}: give a reference to what is large",
                session_id=session_id,
            )
        interrupt_id = answer.interrupt_id
        if not interrupt_id or "/" in interrupt_id:
            raise _not_pending(session_id, interrupt_id, "unknown")
        options = RPCInvokeOptions(
            lock_attribute_map_instances=(INTERRUPTS.lock(interrupt_id),),
            load_attribute_map_instances=(INTERRUPTS.load(interrupt_id),),
        )
        client, rpc = self._connection.client, self._rpc(kind)
        with raised_by_worker(session_id, AnswerTooLargeError, AnswerNotValidError):
            taken = await self._connection.call(
                lambda: client.invoke_rpc(rpc, session_id, answer, options=options), session_id=session_id
            )
        if not taken:
            raise await self._why_not(session_id, kind, interrupt_id)

    def _rpc(self, kind: InterruptKind):
        match kind:
            case "approval":
                return self._flow.resolve_interrupt
            case "answer":
                return self._flow.answer_question
            case "external_result":
                return self._flow.provide_tool_result
        assert_never(kind)

    async def _why_not(self, session_id: str, kind: InterruptKind, interrupt_id: str) -> DexAgentsError:
        client = self._connection.client
        snapshot = await self._connection.call(
            lambda: client.invoke_rpc(self._flow.get_agent_snapshot, session_id), session_id=session_id
        )
        for interrupt in snapshot.interrupts:
            if interrupt.interrupt_id == interrupt_id:
                return _reason_of(session_id, kind, interrupt)
        return _not_pending(session_id, interrupt_id, "unknown")


def _reason_of(session_id: str, kind: InterruptKind, interrupt: Interrupt) -> DexAgentsError:
    if interrupt.status == "pending" and interrupt.question.kind != kind:
        return ConfigurationError(
            f"interrupt {interrupt.interrupt_id!r} of session {session_id!r} is of kind {interrupt.question.kind!r}: "
            f"{_VERBS[interrupt.question.kind]}"
        )
    late = interrupt.deadline is not None and time.time() >= interrupt.deadline
    expired = interrupt.status == "expired" or (interrupt.status != "answered" and late)
    return _not_pending(session_id, interrupt.interrupt_id, "expired" if expired else "answered")


def _not_pending(
    session_id: str, interrupt_id: str, reason: Literal["unknown", "answered", "expired"]
) -> InterruptNotPendingError:
    words = {
        "unknown": "there is none with this id, or its turn ended long ago",
        "answered": "it was answered before, or its turn has ended",
        "expired": "its deadline has passed",
    }
    return InterruptNotPendingError(
        f"interrupt {interrupt_id!r} of session {session_id!r} waits for no answer: {words[reason]}; "
        "reload the snapshot to see what waits",
        session_id=session_id,
        interrupt_id=interrupt_id,
        reason=reason,
    )
