"""Names in `tools` and `reconcilers` that fit no tool."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from dex_agents import AgentHost, AgentSessionFlow
from dex_agents._serving.unknown_names import find_unknown, warn_of_unknown_names
from dex_agents.reconciliation import Happened, Reconciliation, UnknownCall
from dex_agents.runner import Description
from support.scripted_runner import ScriptedRunner


class Classified(ScriptedRunner):
    """A runner that says which policies it was given."""

    def describe(self) -> Description:
        return replace(super().describe(), policy_names=("write_b", "wriet_b"))


class Unlisted(ScriptedRunner):
    """A runner that needs a session's settings to list its tools."""

    def describe(self) -> Description:
        raise KeyError("plan")


async def ask_bank(call: UnknownCall) -> Reconciliation:
    return Happened(result=call.call_id)


async def test_a_host_warns_once_of_each_name_that_fits_no_tool(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flow = AgentSessionFlow(Classified(), name="shop", reconcilers={"write_b": ask_bank, "chrage": ask_bank})
    async with AgentHost(flow, directory=tmp_path):
        pass
    policy, reconciler = [line for line in caplog.messages if "fits no tool" in line]
    assert policy.startswith(
        "the policy of tool 'wriet_b' of agent 'shop' fits no tool that is known before a run (did you mean 'write_b'?)"
        ": known are write_b."
    )
    assert reconciler.startswith("the reconciler of tool 'chrage' of agent 'shop' fits no tool")


def test_an_agent_whose_tools_cannot_be_listed_before_a_run_is_served_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        warn_of_unknown_names(AgentSessionFlow(Unlisted(), name="shop"))
    assert caplog.messages == [
        "names of tools of agent 'shop' are not checked, because its runner cannot list its tools before a run: "
        "KeyError: 'plan'"
    ]


def test_a_tool_of_an_mcp_server_may_be_named_with_its_server_or_without() -> None:
    known = ["mcp__shop__refund", "mcp__bank__*", "Read"]
    assert find_unknown(["refund", "mcp__shop__refund", "mcp__bank__pay", "Read"], known) == []
    assert find_unknown(["refnd", "mcp__shop__refnd", "pay"], known) == ["refnd", "pay"]
    assert find_unknown(["mcp__shop__refnd"], known) == ["mcp__shop__refnd"]
