"""Calls whose outcome was unknown, and what somebody found out about them."""

import json

from dex import Context

from dex_agents._storage.schema import OUTCOME_REPORTS, UNSETTLED_CALLS, find_instance
from dex_agents.snapshot import OutcomeReport

MAX_RESULT_CHARACTERS = 4000
"""Of a report; it goes into the next turn's input."""


def take_report(context: Context, report: OutcomeReport) -> bool:
    """Stage what was found out; the next turn's model hears it.

    The caller holds the lock of the call and has loaded it, so that a call is settled once.

    Returns:
        False when the outcome of this call is not unknown (any more).
    """
    record = find_instance(context, UNSETTLED_CALLS, report.call_id)
    if record is None:
        return False
    call = (
        f"{record.request.name}({json.dumps(record.executed_arguments, ensure_ascii=False)[:500]}) of {record.turn_id}"
    )
    found = "did have its effect" if report.happened else "did not have its effect, so it may be called again"
    text = f"[The outcome of {call} was unknown. It is known now: the call {found}."
    if report.result:
        text += f" {report.result[:MAX_RESULT_CHARACTERS]}"
    UNSETTLED_CALLS.delete(context, report.call_id)
    OUTCOME_REPORTS.set(context, report.call_id, text + "]")
    return True


def take_reports(context: Context) -> list[str]:
    """Stage that all reports are told now; needs the whole map loaded. Returns them in the order of the calls."""
    call_ids = sorted(
        OUTCOME_REPORTS.get_all_instance_keys(context), key=lambda call_id: int(call_id.removeprefix("call-"))
    )
    reports = [OUTCOME_REPORTS.get(context, call_id) for call_id in call_ids]
    for call_id in call_ids:
        OUTCOME_REPORTS.delete(context, call_id)
    return reports
