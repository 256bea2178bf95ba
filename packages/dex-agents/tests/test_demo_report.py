"""What the demo counts as a broken promise."""

from dataclasses import replace

from dex_agents import demo
from dex_agents._demo.report import Evidence
from dex_agents._demo.run_log import Phase, RunLine
from dex_agents.messages import CallBlock, Message, ResultBlock, SavedMessage
from dex_agents.snapshot import ToolCallSnapshot
from dex_agents.tools import ToolEffect, find_policy


def run(tool: str, phase: Phase = "started", key: str | None = None) -> RunLine:
    return RunLine(tool=tool, key=f"s/{tool}" if key is None else key, pid=1, phase=phase, time=0)


def good_evidence() -> Evidence:
    calls = tuple(
        ToolCallSnapshot(
            call_id=each.name,
            turn_id="turn-1",
            name=each.name,
            effect=find_policy(demo.POLICIES, each.name).effect,
            status="ok",
            idempotency_key=f"s/{each.name}",
        )
        for each in demo.CALLS
    )
    blocks = [CallBlock(call_id=each.name, name=each.name, arguments={}) for each in demo.CALLS]
    results = [ResultBlock(call_id=each.name, status="ok", text="done") for each in demo.CALLS]
    messages = [
        SavedMessage(sequence=1, turn_id="turn-1", saved_at=0, message=Message(role="assistant", blocks=tuple(blocks))),
        SavedMessage(sequence=2, turn_id="turn-1", saved_at=0, message=Message(role="tool", blocks=tuple(results))),
    ]
    runs = [
        run("model", key=""),
        run("look_up_order"),
        run("reserve_stock"),
        run("reserve_stock", "applied"),
        run("reserve_stock"),
        run("charge_card"),
    ]
    return Evidence(
        answer=demo.ANSWER, killed=("worker", "engine"), calls=calls, messages=messages, runs=runs, seconds=1.234
    )


def test_the_report_counts_runs_from_the_log_and_outcomes_from_the_session() -> None:
    report = good_evidence().report()
    assert {name: (tool.runs, tool.outcome) for name, tool in report.tools.items()} == {
        "look_up_order": (1, "ok"),
        "reserve_stock": (2, "ok"),
        "charge_card": (1, "ok"),
    }
    assert report.tools["reserve_stock"].idempotency_keys == ["s/reserve_stock"]
    assert report.tools["charge_card"].effect == ToolEffect.NON_IDEMPOTENT_WRITE
    assert (report.model_calls, report.seconds) == (1, 1.23)
    assert good_evidence().broken_promises() == []


def test_a_framework_may_show_the_model_a_prefix_before_the_names_of_tools() -> None:
    evidence = good_evidence()
    calls = tuple(call.model_copy(update={"name": f"mcp__shop__{call.name}"}) for call in evidence.calls)
    assert replace(evidence, calls=calls).report() == evidence.report()
    assert replace(evidence, calls=calls).broken_promises() == []


def test_a_second_run_of_a_single_attempt_tool_breaks_a_promise() -> None:
    evidence = good_evidence()
    twice = replace(evidence, runs=[*evidence.runs, run("charge_card")])
    assert twice.broken_promises() == ["charge_card may run once and ran 2 times"]


def test_a_changed_idempotency_key_breaks_a_promise() -> None:
    evidence = good_evidence()
    other = replace(evidence, runs=[*evidence.runs, run("reserve_stock", key="s/other")])
    assert other.broken_promises() == [
        "reserve_stock ran with ['s/other', 's/reserve_stock'], not with ['s/reserve_stock']"
    ]


def test_a_write_that_took_effect_twice_breaks_a_promise() -> None:
    evidence = good_evidence()
    twice = replace(evidence, runs=[*evidence.runs, run("reserve_stock", "applied")])
    assert twice.broken_promises() == ["reserve_stock took its effect more than once"]


def test_another_answer_a_missing_call_and_a_lost_result_break_promises() -> None:
    evidence = good_evidence()
    broken = replace(evidence, answer="I do not know.", calls=evidence.calls[:2], messages=evidence.messages[:1])
    promises = broken.broken_promises()
    assert any("the answer is 'I do not know.'" in promise for promise in promises)
    assert "charge_card was never asked for" in promises
    assert "look_up_order ended as missing" in promises


def test_a_tool_that_never_ran_breaks_a_promise() -> None:
    evidence = good_evidence()
    none = replace(evidence, runs=[line for line in evidence.runs if line.tool != "look_up_order"])
    assert "look_up_order never ran" in none.broken_promises()
