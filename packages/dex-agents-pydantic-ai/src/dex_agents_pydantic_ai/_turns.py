"""The record of a running turn: what settled calls add to it, and what a run leaves behind."""

from collections.abc import Mapping
from typing import Any

from pydantic_ai import AgentRun
from pydantic_ai.messages import ModelRequest, ModelResponse
from pydantic_graph import End

from dex_agents.errors import TurnFailedError
from dex_agents.runner import BatchSettled
from dex_agents_pydantic_ai._model_step import OpenBatch
from dex_agents_pydantic_ai._private import RunInternals
from dex_agents_pydantic_ai._state import ToolRecord, TurnState, dump_usage, load_usage
from dex_agents_pydantic_ai._tool_call import read_enqueued
from dex_agents_pydantic_ai._tools import to_record


def read_records(batch: BatchSettled, response: ModelResponse) -> dict[str, ToolRecord]:
    """Return what the calls of a batch left behind, by call id.

    Raises:
        TurnFailedError: After one of them the turn cannot go on.
    """
    calls = {call.tool_call_id: call for call in response.tool_calls}
    records = {settled.call.call_id: to_record(settled, calls[settled.call.call_id]) for settled in batch.calls}
    for record in records.values():
        if record.ends_turn is not None:
            raise TurnFailedError(record.ends_turn)
    return records


def merge_records(turn: TurnState, records: Mapping[str, ToolRecord]) -> TurnState:
    """Add what settled calls used, failed at and enqueued to the turn that goes on with them."""
    usage = load_usage(turn.usage)
    for record in records.values():
        if record.usage is not None:
            usage = usage + load_usage(record.usage)

    def names(own: tuple[str, ...], others: list[tuple[str, ...]]) -> tuple[str, ...]:
        return tuple(sorted({*own, *(name for other in others for name in other)}))

    return turn.model_copy(
        update={
            "usage": dump_usage(usage),
            "failed": names(turn.failed, [record.failed for record in records.values()]),
            "succeeded": names(turn.succeeded, [record.succeeded for record in records.values()]),
            "refused": names(turn.refused, [record.refused for record in records.values()]),
            "enqueued": (*turn.enqueued, *(content for record in records.values() for content in record.enqueued)),
        }
    )


def read_turn(run: AgentRun[Any, Any], turn: TurnState, end: OpenBatch | ModelRequest | End[Any] | None) -> TurnState:
    """Return the turn as a run leaves it at the end of a Step.

    Args:
        run: The run, still open or just closed.
        turn: The turn as the Step found it.
        end: What the Step ended with.
    """
    internals = RunInternals[Any](run)
    batch = end if isinstance(end, OpenBatch) else OpenBatch(calls=[])
    return TurnState(
        run_id=turn.run_id,
        run_step=internals.run_step,
        usage=dump_usage(internals.usage),
        output_retries=internals.output_retries,
        tool_retries=internals.tool_retries,
        failed=tuple(sorted(internals.tool_manager.failed_tools)),
        succeeded=tuple(sorted(internals.tool_manager.succeeded_tools)),
        refused=tuple(sorted(internals.tool_manager.availability_refused)),
        output_modes=internals.output_modes,
        established_tools=None if (names := internals.established_tools) is None else tuple(sorted(names)),
        enqueued=read_enqueued(run),
        request_is_open=isinstance(end, ModelRequest),
        open_calls=tuple(call.tool_call_id for call in batch.calls),
        held_calls=tuple(call.tool_call_id for call in batch.held),
        settled=batch.settled,
        traceparent=turn.traceparent,
    )
