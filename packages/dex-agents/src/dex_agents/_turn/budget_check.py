"""Holds a turn and its session to their budgets."""

import logging
from decimal import Decimal
from typing import Final, TypeGuard

from dex_agents._storage.records import SessionRecord
from dex_agents.budgets import Budget
from dex_agents.checks import is_number
from dex_agents.errors import BudgetUsedUpError
from dex_agents.options import AgentSessionOptions
from dex_agents.runner import Again, ModelStep, Usage, Waiting

_logger = logging.getLogger(__name__)

SESSION_REMEDY: Final = "raise session_budget in the agent's options, or go on in a new session"


def check_budgets(record: SessionRecord, options: AgentSessionOptions, *, asked_calls: int = 0) -> None:
    """Refuse a further model call, and calls that the model asks for, when a budget does not allow them.

    Args:
        record: The session, with the running turn.
        options: The budgets.
        asked_calls: Tool calls that the model has asked for just now.

    Raises:
        BudgetUsedUpError: A budget is used up; names it, its limit and what was used.
    """
    turn = record.running_turn
    if (budget := options.turn_budget) is not None:
        made = len(turn.calls) + turn.dropped_calls
        calls = turn.usage.requests + turn.lost_attempts
        _check("turn", budget, turn.usage, calls, made, asked_calls, "send another message, or raise turn_budget")
    if turn.usage.unpriced_requests and _limits_cost(options):
        raise BudgetUsedUpError(
            f"the cost of {turn.usage.unpriced_requests:,} model calls of the turn could not be told, so a budget of "
            "cost cannot be kept: correct `price` in the agent's options; the Worker's log has the reason"
        )
    check_session_budget(record, options, asked_calls=asked_calls)


def check_session_budget(record: SessionRecord, options: AgentSessionOptions, *, asked_calls: int = 0) -> None:
    """Refuse what the session's own budget does not allow; see `check_budgets`."""
    if (budget := options.session_budget) is not None:
        calls = record.usage.requests + record.lost_attempts
        _check("session", budget, record.usage, calls, record.call_number, asked_calls, SESSION_REMEDY)


def used_up_by(record: SessionRecord, step: ModelStep, options: AgentSessionOptions) -> BudgetUsedUpError | None:
    """Return why a turn must end before what the model asked for; None when it may go on, or has ended."""
    asked = len(step.outcome.calls) if isinstance(step.outcome, Waiting) else 0
    if not asked and not isinstance(step.outcome, Again):
        return None
    try:
        check_budgets(record, options, asked_calls=asked)
    except BudgetUsedUpError as used_up:
        return used_up
    return None


def failure_reason(error: Exception) -> str:
    """Return why a turn fails, in a word for programs."""
    return "budget" if isinstance(error, BudgetUsedUpError) else ""


def priced(usage: Usage, model: str, options: AgentSessionOptions, session: SessionRecord) -> Usage:
    """Return the usage of a model Step with what it cost.

    The call is paid, so an application's `price` that raises or returns no amount takes neither its answer nor its
    tokens away: its requests are counted as unpriced, and the log says so once a session.
    """
    if options.price is None:
        return usage
    try:
        cost: object = options.price(usage, model)
        problem = None if _is_amount(cost) else f"returned {cost!r:.100}: return a finite number from 0"
    except Exception as error:  # noqa: BLE001  the application's own code
        cost, problem = 0.0, f"raised {type(error).__name__}: {error}"
    if problem is None:
        return usage.model_copy(update={"cost": float(cost)})
    if not session.usage.unpriced_requests:
        _logger.warning("the cost of a call of model %r is unknown, since `price` %s", model, problem)
    return usage.model_copy(update={"cost": 0.0, "unpriced_requests": max(1, usage.requests)})


def _is_amount(cost: object) -> TypeGuard[int | float | Decimal]:
    return (is_number(cost) or (isinstance(cost, Decimal) and cost.is_finite())) and cost >= 0


def _limits_cost(options: AgentSessionOptions) -> bool:
    budgets = (options.turn_budget, options.session_budget)
    return any(budget is not None and budget.cost is not None for budget in budgets)


def _check(scope: str, budget: Budget, usage: Usage, calls: int, made: int, asked: int, remedy: str) -> None:
    tokens = usage.input_tokens + usage.output_tokens
    used = (
        ("model calls", budget.model_calls, calls),
        ("tokens", budget.tokens, tokens),
        ("cost", budget.cost, usage.cost),
    )
    for name, limit, value in used:
        if limit is not None and value >= limit:
            raise BudgetUsedUpError(f"the {scope}'s budget of {limit:,} {name} is used up ({value:,} used): {remedy}")
    limit = budget.tool_calls
    if limit is None:
        return
    if asked and made + asked > limit:
        raise BudgetUsedUpError(
            f"the {scope}'s budget of {limit:,} tool calls is used up ({made:,} used, the model asked for {asked:,} "
            f"more): {remedy}"
        )
