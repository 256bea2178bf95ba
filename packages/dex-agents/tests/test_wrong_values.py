"""Values that cannot be are refused where they are given, by an error that names them and the remedy."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from dex_agents import (
    AgentHost,
    AgentSessionFlow,
    AgentSessionOptions,
    Budget,
    ToolEffect,
    ToolPolicy,
    UserQuestion,
)
from dex_agents.checks import check_callables, check_mappings, check_policies
from dex_agents.errors import ConfigurationError
from dex_agents.sync import SyncAgentHost
from support.scripted_runner import ScriptedRunner
from support.scripted_sessions import scripted_flow

NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("option", "value", "remedy"),
    [
        ("compaction", NAN, "nan: give the size of the model's context window"),
        ("compaction", 1000.5, "1000.5: give the size"),
        ("compaction", "200k", "'200k': give the size"),
        ("retained_message_limit", 1.5, "1.5: give a positive whole number, or None"),
        ("forkable_turns", "3", "'3': give 0 to 50"),
        ("forkable_turns", True, "True: give 0 to 50"),
        ("run_model_limit", True, "True: give 1, 2 or 3 attempts"),
        ("message_window_size", True, "True: give a positive whole number"),
        ("message_window_max_bytes", "1", "'1': give a positive whole number"),
        ("interrupt_deadline", 60, "60: give a timedelta of at least one second"),
        ("turn_budget", 5, "5: give a Budget"),
        ("session_budget", {"tokens": 5}, "a dict: give a Budget"),
        ("at_rest", "my-secret-key", "a str: give an Encryption"),
        ("telemetry", "otel", "'otel': give an object with the methods of SessionTelemetry"),
        ("redact_event", "mask", "'mask': give a function"),
        ("price", 0.5, "0.5: give a function"),
    ],
)
def test_an_option_of_a_wrong_type_is_named_with_its_remedy(option: str, value: object, remedy: str) -> None:
    wrong: dict[str, Any] = {option: value}
    with pytest.raises(ConfigurationError) as refused:
        AgentSessionOptions(**wrong)
    assert str(refused.value).startswith(f"{option} is {remedy}")


@pytest.mark.parametrize("limit", ["5", True, 1.5, INFINITE, NAN, 0])
def test_a_count_of_a_budget_is_a_positive_whole_number(limit: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"a budget's tokens is .*: give a positive whole number"):
        Budget(tokens=limit)


@pytest.mark.parametrize("cost", ["5", True, INFINITE, NAN, 0])
def test_the_cost_of_a_budget_is_a_positive_number(cost: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"a budget's cost is .*: give a positive number"):
        Budget(cost=cost)
    assert Budget(cost=0.5).cost == 0.5


@pytest.mark.parametrize(
    ("tools", "named"),
    [
        ("look_up", "tools is 'look_up': give a mapping"),
        ({"look_up": "read"}, r"tools\['look_up'\] is 'read': give a ToolEffect"),
        ({"pay": ToolPolicy(approval_deadline=timedelta(0))}, r"approval_deadline of tools\['pay'\] is .*one second"),
    ],
)
def test_policies_of_tools_are_checked(tools: Any, named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        check_policies(tools)
    good: Mapping[str, ToolPolicy | ToolEffect] = {"look_up": ToolEffect.READ}
    assert (check_policies(good), check_policies(None)) == (good, {})


def test_what_is_no_function_or_no_mapping_is_named() -> None:
    check_callables(deps=None, context=len)
    check_mappings(models=None)
    with pytest.raises(ConfigurationError, match="deps is 5: give a function"):
        check_callables(deps=5)
    with pytest.raises(ConfigurationError, match="models is a list: give a mapping"):
        check_mappings(models=["small"])


@pytest.mark.parametrize(
    ("choices", "named"),
    [("SML", "'SML': give a list or tuple"), ([1, 2], "a list: give a list or tuple of texts"), (["S", "S"], "once")],
)
def test_choices_are_texts_each_once(choices: Any, named: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"choices of 'Size\?' (is|are) .*{named}"):
        UserQuestion(prompt="Size?", choices=choices)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"options": {}}, "options is a dict: give AgentSessionOptions"),
        ({"settings_resolver": "x"}, "settings_resolver is 'x': give a function"),
        ({"reconcilers": {"pay": "x"}}, r"reconcilers\['pay'\] is 'x': give a function"),
        ({"reconcilers": [1]}, "reconcilers is a list: give a mapping"),
        ({"name": ""}, "is empty"),
        ({"name": 5}, "is a int: give a text"),
        ({"runner": object()}, r"runner is a object: give a runner, or .*session_flow\(agent\)"),
    ],
)
def test_arguments_of_a_flow_are_checked(arguments: dict[str, Any], named: str) -> None:
    given: dict[str, Any] = {"runner": ScriptedRunner(), "name": "scripted", **arguments}
    with pytest.raises(ConfigurationError, match=named):
        AgentSessionFlow(given.pop("runner"), **given)


def test_a_host_that_is_given_an_agent_says_to_give_its_flow() -> None:
    agent: Any = object()
    flows: Any = [scripted_flow()]
    for wrong in (agent, flows):
        with pytest.raises(ConfigurationError, match=r"AgentHost\(session_flow\(agent\)\)"):
            AgentHost(wrong)
    flow: Any = scripted_flow()
    with pytest.raises(ConfigurationError, match=r"SyncAgentHost\(AgentHost\(session_flow\(agent\)\)\)"):
        SyncAgentHost(flow)


@pytest.mark.parametrize(
    ("option", "value"), [("drain_timeout", 1e300), ("drain_timeout", NAN), ("max_concurrent_tasks", 2.5)]
)
def test_a_hosts_numbers_are_bounded(option: str, value: Any) -> None:
    given: dict[str, Any] = {option: value}
    with pytest.raises(ConfigurationError, match=f"{option} is {value!r}".replace("+", r"\+")):
        AgentHost(scripted_flow(), **given)
