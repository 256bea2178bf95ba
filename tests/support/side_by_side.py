"""What the comparisons of a plain run with a durable session share, whatever the framework."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

from pydantic import JsonValue

from dex_agents.messages import Block, TextBlock
from dex_agents.testing import InMemorySession, TurnFailed

Shown = TypeVar("Shown")
"""What a framework's scripted model keeps of a request."""


@dataclass
class Trace(Generic[Shown]):
    """What one way of running the agent did."""

    shown: list[Shown]
    results: list[JsonValue] = field(default_factory=list[JsonValue])
    error: str | None = None
    log: list[str] = field(default_factory=list[str])
    requests: int = 0
    tokens: int = 0
    steps: list[str] = field(default_factory=list[str])
    history: JsonValue = None

    async def run_turns(self, session: InMemorySession, turns: Sequence[str | Sequence[Block]]) -> None:
        """Run the turns in a session, and note how they ended and what they took."""
        for turn in turns:
            ended = await session.send(turn)
            if isinstance(ended, TurnFailed):
                self.error = str(ended.error)
            else:
                self.results.append(ended.text if ended.output is None and ended.text else ended.output)
        self.requests = session.usage.requests
        self.tokens = session.usage.input_tokens + session.usage.output_tokens
        self.steps = session.steps


def check_same(
    plain: Trace[Shown],
    durable: Trace[Shown],
    *,
    request: Callable[[Shown], dict[str, Any]],
    history: Callable[[JsonValue], JsonValue],
    fails: str | None,
    compare_log: bool,
) -> None:
    """Check that both ways showed the model the same and ended the same.

    Args:
        plain: What the plain run did.
        durable: What the session did.
        request: Makes JSON of a request, without what may differ.
        history: Leaves out of the history what may differ.
        fails: The last turn must have ended with this error's text in it; None for an answer.
        compare_log: Compare what was logged, in any order.
    """
    assert durable.error == plain.error, f"plainly: {plain.error!r}, durably: {durable.error!r}"
    for number, (one, other) in enumerate(zip(plain.shown, durable.shown, strict=False), start=1):
        wanted, got = request(one), request(other)
        assert got == wanted, f"request {number} differs: {first_difference(wanted, got)}"
    assert len(durable.shown) == len(plain.shown)
    assert durable.results == plain.results, f"{plain.results} {durable.results}"
    if fails is None:
        assert plain.error is None, plain.error
        before, after = history(plain.history), history(durable.history)
        assert after == before, first_difference(before, after, "history")
        used = (durable.requests, durable.tokens)
        assert used == (plain.requests, plain.tokens), f"{used}, plainly {(plain.requests, plain.tokens)}"
    else:
        assert plain.error is not None
        assert fails in plain.error
    if compare_log:
        assert sorted(durable.log) == sorted(plain.log), f"plainly: {plain.log}, durably: {durable.log}"


def without_repeats(shown: Sequence[Shown]) -> list[Shown]:
    """Leave out each request that repeats the one before it, for a run that makes every model Step twice."""
    return [request for index, request in enumerate(shown) if index == 0 or request != shown[index - 1]]


def as_blocks(turn: str | Sequence[Block]) -> Sequence[Block]:
    """Return what the user says in a turn as blocks."""
    return (TextBlock(text=turn),) if isinstance(turn, str) else turn


def first_difference(wanted: JsonValue, got: JsonValue, path: str = "") -> str:
    """Name the first place where two JSON values differ."""
    if isinstance(wanted, dict) and isinstance(got, dict):
        for key in (*wanted, *(key for key in got if key not in wanted)):
            if wanted.get(key) != got.get(key):
                return first_difference(wanted.get(key), got.get(key), f"{path}.{key}")
    if isinstance(wanted, list) and isinstance(got, list):
        for index, (one, other) in enumerate(zip(wanted, got, strict=False)):
            if one != other:
                return first_difference(one, other, f"{path}[{index}]")
        longer = cast("list[JsonValue]", wanted if len(wanted) > len(got) else got)
        return (
            f"{path} has {len(got)} elements, plainly {len(wanted)}; the next is {longer[min(len(wanted), len(got))]!r}"
        )
    return f"{path} is {got!r}, plainly {wanted!r}"
