"""Any interleaving of messages, steering, cancels, approvals, deadlines and crashes leaves a whole session.

A quick sample is part of `tests`; `nox -s crash` plays many more plans.
"""

import os

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings

from properties import pydantic_ai_agent
from properties.plain_agent import PlainAgent
from properties.plans import PLANS, Do, Say, play
from properties.world import MakeRunner

EXAMPLES = int(os.environ.get("PROPERTY_EXAMPLES", "4"))
"""Plans that are played; `nox -s crash` asks for more."""

# What happens meanwhile is a matter of milliseconds, so a plan that fails need not fail again: it is not shrunk.
any_plan = settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=tuple(HealthCheck),  # pyright: ignore[reportArgumentType]  it is an enum
    database=None,
    print_blob=True,
)


@pytest.mark.timeout(30 + 5 * EXAMPLES)
@pytest.mark.parametrize("make_runner", [PlainAgent, pydantic_ai_agent.make_runner], ids=["plain", "pydantic-ai"])
@any_plan
@given(plan=PLANS)
@example(plan=[Say("send", 4), Say("steer", 0), Do("crash", 10), Do("cancel"), Say("interrupt", 2), Do("approve", 20)])
def test_a_session_stays_whole_whatever_happens(make_runner: MakeRunner, plan: list[Say | Do]) -> None:
    play(make_runner, plan)
