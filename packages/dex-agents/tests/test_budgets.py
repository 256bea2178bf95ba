"""Budgets of a turn and of a session."""

from pathlib import Path
from typing import cast

import pytest

from dex_agents import AgentSessionOptions, Budget
from dex_agents.budgets import listed_price
from dex_agents.errors import (
    BudgetUsedUpError,
    ConfigurationError,
    SessionBudgetUsedUpError,
)
from dex_agents.runner import Usage
from support.scripted_runner import read_runs
from support.scripted_sessions import scripted_session


def runs(log: Path, kind: str) -> int:
    return sum(1 for run in read_runs(log) if run["kind"] == kind)


async def test_a_turn_ends_at_its_model_calls_before_another_tool_runs_and_the_session_goes_on(
    tmp_path: Path, log: Path
) -> None:
    options = AgentSessionOptions(turn_budget=Budget(model_calls=2))
    async with scripted_session(tmp_path / "engine", options=options) as session:
        with pytest.raises(BudgetUsedUpError, match=r"budget of 2 model calls is used up \(2 used\)"):
            await session.ask("call write_a\ncall write_b\nsay never", timeout=10)
        assert [run["name"] for run in read_runs(log) if run["kind"] == "tool"] == ["write_a"]
        snapshot = await session.snapshot()
        assert snapshot.usage.requests == 2

        result = await session.ask("recall", timeout=10)

        # The history is whole: what ran has its result, and what did not is said to have not.
        assert "write_a -> returned" in result.text
        assert "write_b -> not_run: the call did not run: the turn's budget" in result.text
        assert "do not repeat them: write_a" in result.text


async def test_tool_calls_beyond_the_budget_do_not_run_at_all(tmp_path: Path, log: Path) -> None:
    options = AgentSessionOptions(turn_budget=Budget(tool_calls=2))
    async with scripted_session(tmp_path / "engine", options=options) as session:
        with pytest.raises(BudgetUsedUpError, match=r"2 tool calls is used up \(1 used, the model asked for 2 more\)"):
            await session.ask("call read_a\ncall read_b, read_c\nsay never", timeout=10)
        assert runs(log, "tool") == 1
        # As many as are allowed, and the next turn has a budget of its own.
        assert (await session.ask("call read_a, read_b\nsay done", timeout=10)).text == "done"


async def test_a_used_up_turn_budget_never_takes_an_answer_away(tmp_path: Path, log: Path) -> None:
    options = AgentSessionOptions(turn_budget=Budget(tokens=1))
    async with scripted_session(tmp_path / "engine", options=options) as session:
        assert (await session.ask("say paid already", timeout=10)).text == "paid already"
        with pytest.raises(BudgetUsedUpError, match="budget of 1 tokens is used up"):
            await session.ask("again\nsay never", timeout=10)
        assert runs(log, "model") == 2


async def test_a_session_whose_budget_is_used_up_refuses_messages_until_it_is_raised(tmp_path: Path, log: Path) -> None:
    def price(usage: Usage, model: str) -> float:
        return 0.25 * usage.requests

    options = AgentSessionOptions(session_budget=Budget(cost=0.5), price=price)
    async with scripted_session(tmp_path / "engine", options=options) as session:
        await session.ask("say one", timeout=10)
        queued = await session.send("call read_sleepy, write_a!\nsay never")
        with pytest.raises(BudgetUsedUpError, match=r"session's budget of 0.5 cost is used up \(0.5 used\)"):
            await session.wait_for_result(queued.message_id, timeout=10)
        with pytest.raises(SessionBudgetUsedUpError, match="raise session_budget in the agent's options"):
            await session.send("say two")
        with pytest.raises(SessionBudgetUsedUpError):
            await session.steer("say two")
        # A repeat of what was taken before is no new message.
        assert (await session.send("call read_sleepy, write_a!\nsay never", message_id=queued.message_id)).repeated
        assert (await session.snapshot()).usage.cost == 0.5
    raised = AgentSessionOptions(session_budget=Budget(cost=5), price=price)
    async with scripted_session(tmp_path / "engine", options=raised) as session:
        assert (await session.ask("say two", timeout=10)).text == "two"
        assert (await session.snapshot()).usage.cost == 0.75


async def test_messages_that_were_queued_before_the_session_budget_was_used_up_end_with_the_reason(
    tmp_path: Path, log: Path
) -> None:
    options = AgentSessionOptions(session_budget=Budget(model_calls=1))
    async with scripted_session(tmp_path / "engine", options=options) as session:
        first = await session.send("say one")
        second = await session.send("say two")
        assert (await session.wait_for_result(first.message_id, timeout=10)).text == "one"
        with pytest.raises(BudgetUsedUpError, match="session's budget of 1 model calls"):
            await session.wait_for_result(second.message_id, timeout=10)
        assert runs(log, "model") == 1


async def test_a_repeated_attempt_counts_as_a_model_call_of_its_own(tmp_path: Path, log: Path) -> None:
    options = AgentSessionOptions(turn_budget=Budget(model_calls=3))
    async with scripted_session(tmp_path / "engine", options=options) as session:
        # Two attempts of the first Step, one of the second, and then a call that must not be made.
        with pytest.raises(BudgetUsedUpError, match=r"3 model calls is used up \(3 used\)"):
            await session.ask("again-crash-once\nagain\nsay never", timeout=20)
        assert runs(log, "model") == 3


async def test_a_price_that_cannot_be_told_ends_a_turn_with_a_budget_of_cost_and_the_usage_is_kept(
    tmp_path: Path, log: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = AgentSessionOptions(turn_budget=Budget(cost=1), price=listed_price)
    async with scripted_session(tmp_path / "engine", options=options) as session:
        # An answer that is paid is not taken away.
        assert (await session.ask("say hello", timeout=10)).text == "hello"
        with pytest.raises(BudgetUsedUpError, match="cost of 1 model calls of the turn could not be told"):
            await session.ask("call write_a\nsay never", timeout=10)
        usage = (await session.snapshot()).usage
    assert (usage.requests, usage.unpriced_requests, usage.cost) == (2, 2, 0)
    assert usage.input_tokens > 0
    assert runs(log, "tool") == 0
    assert caplog.text.count("is unknown, since `price` raised ConfigurationError") == 1


async def test_a_price_that_is_no_amount_leaves_the_tokens_counted_and_the_cost_unknown(
    tmp_path: Path, log: Path, caplog: pytest.LogCaptureFixture
) -> None:
    prices: list[object] = [float("nan"), float("inf"), -1.0, None, "1", True]
    wrong = len(prices)
    options = AgentSessionOptions(price=lambda usage, model: cast("float", prices.pop(0) if prices else 0.5))
    async with scripted_session(tmp_path / "engine", options=options) as session:
        for _ in range(wrong + 1):
            assert (await session.ask("say paid", timeout=10)).text == "paid"
        usage = (await session.snapshot()).usage
    assert (usage.requests, usage.unpriced_requests, usage.cost) == (wrong + 1, wrong, 0.5)
    assert caplog.text.count("`price` returned") == 1
    assert "model '' is unknown, since `price` returned nan: return a finite number from 0" in caplog.text


def test_a_list_price_is_that_of_the_model() -> None:
    assert listed_price(Usage(requests=1, input_tokens=1000, output_tokens=100), "gpt-4o") == pytest.approx(0.0035)
    with pytest.raises(ConfigurationError, match="knows no price of the model 'nonsense'"):
        listed_price(Usage(requests=1), "nonsense")


def test_budgets_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="tokens is 0"):
        Budget(tokens=0)
    with pytest.raises(ConfigurationError, match="without any limit"):
        Budget()
    with pytest.raises(ConfigurationError, match="give a `price`"):
        AgentSessionOptions(session_budget=Budget(cost=1))
