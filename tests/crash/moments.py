"""The moments at which processes are killed, and what may come of it."""

import os
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

Victim = Literal["worker", "engine", "both"]
VICTIMS: Final[tuple[Victim, ...]] = ("worker", "engine", "both")
Story = Literal["sale", "trouble", "delay", "picture"]

TOOLS: Final[Mapping[Story, Mapping[str, str]]] = {
    "sale": {
        "CallTool-1": "read_stock",
        "CallTool-2": "reserve",
        "CallSingleAttemptTool-1": "charge",
        "CallSingleAttemptTool-2": "ship",
    },
    "picture": {"CallTool-1": "read_stock"},
}
"""Which call each tool Step makes, in the stories whose calls are hit."""

SALE_METHODS: Final = (
    "AwaitUserMessage-1.wait_for",
    "AwaitUserMessage-1.execute",
    "RunModel-1.execute",
    "CallTool-1.execute",
    "CallTool-2.execute",
    "CallSingleAttemptTool-1.execute",
    "AwaitToolApproval-1.wait_for",
    "AwaitToolApproval-1.execute",
    "CallSingleAttemptTool-2.execute",
    "ResumeTurn-1.wait_for",
    "ResumeTurn-1.execute",
    "RunModel-2.execute",
    "AwaitUserMessage-2.wait_for",
)
"""Every method of every Step that the sale runs; the undisturbed run checks that there is no other."""

TROUBLE_METHODS: Final = (
    "RecordToolFailure-1.execute",
    "RecordToolOutcomeUnknown-1.execute",
    "RecordTurnFailure-1.execute",
    "RecordTurnCancellation-1.execute",
)
"""The routes on which calls and turns end badly."""

DELAY_METHODS: Final = ("AwaitToolStart-1.wait_for", "AwaitToolStart-1.execute")
"""How a call waits whose tool wants to be run again later."""

PICTURE_METHODS: Final = (
    "AwaitUserMessage-1.execute",
    "RunModel-1.execute",
    "CallTool-1.execute",
    "ResumeTurn-1.execute",
    "RunModel-2.execute",
)
"""What takes a large image out of its message, keeps it beside the model's history, or puts it back in."""


@dataclass(frozen=True)
class Moment:
    """Where the processes are killed.

    Attributes:
        story: The conversation.
        step: The Step execution, for example `RunModel-1`.
        phase: `<method>.before` and `<method>.after` its code; `middle`: inside the provider's or the tool's work;
            `waiting`: the Step waits and holds no Worker.
    """

    story: Story
    step: str
    phase: str

    def __str__(self) -> str:
        return f"{self.step}.{self.phase}"

    @property
    def point(self) -> str:
        """The point of `support.crash_points`; empty when the processes are held elsewhere."""
        return "" if self.phase in ("middle", "waiting") else str(self)

    @property
    def tool(self) -> str:
        """The tool whose call is hit; empty for none."""
        return TOOLS.get(self.story, {}).get(self.step, "")

    @property
    def ran(self) -> bool:
        """The code of the Step's method had begun."""
        return not self.phase.endswith("before")


def _moments_of(story: Story, methods: tuple[str, ...]) -> Iterator[Moment]:
    for method in methods:
        step, _, name = method.partition(".")
        for side in ("before", "after"):
            yield Moment(story, step, f"{name}.{side}")
        if name == "execute" and step.startswith(("RunModel", "Call")):
            yield Moment(story, step, "middle")


def _all_moments() -> Iterator[Moment]:
    yield from _moments_of("sale", SALE_METHODS)
    yield Moment("sale", "AwaitUserMessage-1", "waiting")
    yield Moment("sale", "AwaitToolApproval-1", "waiting")
    yield Moment("delay", "AwaitToolStart-1", "waiting")
    yield from _moments_of("trouble", TROUBLE_METHODS)
    yield from _moments_of("delay", DELAY_METHODS)
    yield from _moments_of("picture", PICTURE_METHODS)


MOMENTS: Final = tuple(_all_moments())

WHOLE_MATRIX: Final = os.environ.get("CRASH_MATRIX") == "whole"
"""Set by `nox -s crash`; otherwise only a sample runs."""

SEED: Final = int(os.environ.get("CRASH_SEED", "20261129"))
"""Chooses the sample; another seed runs another one."""


def chosen(adapter_number: int, adapters: int) -> list[tuple[Moment, Victim]]:
    """Return the whole matrix, or an adapter's part of the sample.

    The sample has one moment and victim of every kind of Step, and one of the picture.

    Args:
        adapter_number: The adapter's place among all of them, from 0; the kinds are dealt out among them.
        adapters: How many there are.
    """
    if WHOLE_MATRIX:
        return [(moment, victim) for moment in MOMENTS for victim in VICTIMS]
    dice = random.Random(SEED)
    kinds: dict[str, list[Moment]] = {}
    for moment in MOMENTS:
        kind = "picture" if moment.story == "picture" else moment.step.partition("-")[0]
        kinds.setdefault(kind, []).append(moment)
    sample: list[tuple[Moment, Victim]] = [(dice.choice(each), dice.choice(VICTIMS)) for each in kinds.values()]
    dice.shuffle(sample)
    return sample[adapter_number::adapters]
