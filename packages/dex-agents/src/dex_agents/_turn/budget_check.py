"""Holds a turn and its session to their budgets."""

import math

from dex_agents._storage.records import SessionRecord
from dex_agents.budgets import Budget
from dex_agents.errors import BudgetUsedUpError, TurnFailedError
from dex_agents.options import AgentSessionOptions
from dex_agents.runner import Again, ModelStep, Usage, Waiting

SESSION_REMEDY = "raise session_budget in the agent's options, or go on in a new session"


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


def priced(usage: Usage, model: str, options: AgentSessionOptions) -> Usage:
    """Return usage with what it cost.

    Raises:
        TurnFailedError: The application's `price` raised or returned no amount: a budget that cannot be kept must not
            be passed over.
    """
    if options.price is None:
        return usage
    try:
        found = options.price(usage, model)
        cost = float(found)
    except Exception as error:
        raise TurnFailedError(f"the price of a call of model {model!r} cannot be told: {error}") from error
    if not (math.isfinite(cost) and cost >= 0):
        raise TurnFailedError(
            f"`price` returned {found!r} for a call of model {model!r}: return a finite number from 0"
        )
    return usage.model_copy(update={"cost": cost})


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
