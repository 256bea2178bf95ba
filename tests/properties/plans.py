"""What may happen to a session, as data for hypothesis."""

import asyncio
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from hypothesis import strategies as st

from properties.world import MakeRunner, World

SCRIPTS = (
    "say",
    "call read_a write_b; say",
    "call write_a! read_b; say",
    "chain write_a read_b; say",
    "call hold_a read_b; say",
    "call read_a; call write_b; say",
    "call raise_a read_b; say",
    "call hold_a! write_b!; call read_c; say",
    "fail",
    "call write_a; fail",
)
"""Of user messages: one part a model call. `!` needs an approval, `hold` waits, `raise` raises after its effect."""

_KNOWN_ENDS = "the script fails|cancelled by the user|interrupted by the user"

Verb = Literal["send", "steer", "interrupt"]


@dataclass(frozen=True)
class Say:
    """A message, and perhaps a crash while it is on its way."""

    verb: Verb
    script: int
    crash_after_milliseconds: int | None = None


@dataclass(frozen=True)
class Do:
    """Anything else."""

    what: Literal["cancel", "approve", "deny", "answer_twice", "expire", "release", "pause", "crash"]
    milliseconds: int = 0


VERBS: tuple[Verb, ...] = ("send", "send", "steer", "interrupt")
MESSAGES = st.builds(
    Say,
    st.sampled_from(VERBS),
    st.integers(0, len(SCRIPTS) - 1),
    st.none() | st.none() | st.integers(0, 30),
)
DEEDS = st.builds(
    Do,
    st.sampled_from(("cancel", "approve", "deny", "answer_twice", "release", "pause", "crash", "crash", "expire")),
    st.integers(0, 30),
)
PLANS = st.lists(MESSAGES | DEEDS, min_size=1, max_size=14)


def play(make_runner: MakeRunner, plan: list[Say | Do]) -> None:
    """Play a plan and check what must hold at its end."""
    with TemporaryDirectory(prefix="dex-agents-properties-") as directory:
        asyncio.run(_play(make_runner, plan, Path(directory)))


async def _play(make_runner: MakeRunner, plan: list[Say | Do], directory: Path) -> None:
    world = World(directory, make_runner)
    await world.start()
    try:
        for step in plan:
            await _take(world, step)
        await world.rest()
        await _check(world)
    except BaseException as error:
        error.add_note(f"the plan: {plan}")
        raise
    finally:
        await world.close()


async def _take(world: World, step: Say | Do) -> None:
    if isinstance(step, Say):
        message_id = world.new_message(SCRIPTS[step.script])
        if step.crash_after_milliseconds is None:
            await world.deliver(step.verb, message_id)
        else:
            await world.deliver_through_crash(step.verb, message_id, step.crash_after_milliseconds)
        return
    await asyncio.sleep(step.milliseconds / 1000)
    match step.what:
        case "cancel":
            await world.cancel()
        case "approve":
            await world.answer(approved=True)
        case "deny":
            await world.answer(approved=False)
        case "answer_twice":
            await world.answer(approved=True, times=2)
        case "expire":
            await world.expire()
        case "release":
            world.life.gate.set()
        case "crash":
            await world.crash()
        case "pause":
            pass


async def _check(world: World) -> None:
    saved = [message async for message in world.session.iter_messages()]
    assert [message.sequence for message in saved] == list(range(1, len(saved) + 1))
    said = Counter(message.message.text for message in saved if message.message.role == "user")
    sent = Counter(world.texts[message_id] for message_id in world.sent)
    assert said == sent, f"lost: {sent - said}, doubled or never sent: {said - sent}"
    for message in saved:
        ids = [block.call_id for block in message.message.blocks if block.kind == "result"]
        assert len(ids) == len(set(ids))
    twice = {key: count for key, count in world.effects.items() if count > 1 and "read" not in key}
    assert not twice, f"writes that ran twice: {twice}"
    assert not world.violations, world.violations[0]
    # What the model has seen: each message of a completed turn once, and no other one twice.
    shown = (await world.session.ask("recall", timeout=10)).text
    numbers = Counter(re.findall(r"(?:^|\n)#(\d+)#", shown))
    assert not [number for number, count in numbers.items() if count > 1], (
        f"the model has seen a message twice: {shown}"
    )
    for message_id, outcome in world.outcomes.items():
        assert outcome == "completed" or re.search(_KNOWN_ENDS, outcome), f"{message_id}: {outcome}"
        if outcome == "completed":
            assert numbers[message_id.removeprefix("m-")] == 1, f"the model has not seen {message_id}: {shown}"
