"""Finding out what became of a call whose outcome is unknown, before the model is told.

```python
async def find_charge(call: UnknownCall) -> Reconciliation:
    charge = await bank.find(idempotency_key=call.idempotency_key)
    if charge is None:
        return DidNotHappen()
    return Happened(result=f"{charge.euros} euros are charged")


flow = session_flow(agent, tools=..., reconcilers={"charge_card": find_charge})
```

A reconciler is asked in a Step of its own, as a read: up to three attempts, and again after a crash. It must change
nothing.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import Annotated, Literal

from pydantic import Field, JsonValue

from dex_agents._stored import Stored
from dex_agents.errors import ConfigurationError
from dex_agents.tools import Failed, OutcomeUnknown, RetryLater, Returned, Settlement


@dataclass(frozen=True, kw_only=True)
class UnknownCall:
    """A call that may or may not have had its effect.

    Attributes:
        session_id: The session's id.
        turn_id: The turn that asked for it, for example `turn-3`.
        call_id: The session's own id of the call.
        tool_name: The tool's name.
        idempotency_key: What the tool gave to the system that it writes to.
        arguments: What was executed; None where the call is of an earlier turn and they were long.
        error: What is known of the last attempt.
        attempt: 1 for the first attempt of this question.
        settings: The session's settings, references without secrets.
    """

    session_id: str
    turn_id: str
    call_id: str
    tool_name: str
    idempotency_key: str
    arguments: JsonValue
    error: str
    attempt: int = 1
    settings: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])


class Happened(Stored):
    """The call had its effect.

    Attributes:
        result: What the tool would have returned, as JSON; the model is told it as the tool's result.
    """

    kind: Literal["happened"] = "happened"
    result: JsonValue


class DidNotHappen(Stored):
    """The call did not have its effect, and never will: a request that is still on its way would be refused.

    The call is `failed`, and the model hears that it may call again.
    """

    kind: Literal["did_not_happen"] = "did_not_happen"
    message: str = "the call did not have its effect, so it is safe to call again"


class StillUnknown(Stored):
    """The system cannot tell. The outcome stays unknown, for people to settle.

    Attributes:
        message: Why.
        ask_again_after: Seconds after which to ask again instead; the turn waits, and nothing is held.
    """

    kind: Literal["still_unknown"] = "still_unknown"
    message: str = ""
    ask_again_after: float | None = Field(default=None, gt=0, allow_inf_nan=False)


Reconciliation = Annotated[Happened | DidNotHappen | StillUnknown, Field(discriminator="kind")]

Reconciler = Callable[
    [UnknownCall], Happened | DidNotHappen | StillUnknown | Awaitable[Happened | DidNotHappen | StillUnknown]
]
"""Asks the system that a tool writes to, by the idempotency key, what became of a call; a plain one must not block."""

Reconcilers = Mapping[str, Reconciler]
"""By the name of the tool."""


def settled_by(reconciliation: Happened | DidNotHappen | StillUnknown, suspected: str) -> Settlement | RetryLater:
    """Return how a call ended, or when to ask again; for sessions and their test harness.

    Args:
        reconciliation: What the reconciler said.
        suspected: What is told when it knows no more.
    """
    match reconciliation:
        case Happened(result=result):
            text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
            return Returned(record=result, text=text, reconciled=True)
        case DidNotHappen(message=message):
            return Failed(message=message)
        case StillUnknown(message=message, ask_again_after=None):
            return OutcomeUnknown(message=f"{suspected} ({message})" if message else suspected)
        case StillUnknown(message=message, ask_again_after=seconds):
            return RetryLater(after_seconds=seconds or 0, reason=message)


async def ask_reconciler(reconciler: Reconciler, call: UnknownCall) -> Happened | DidNotHappen | StillUnknown:
    """Return what a reconciler says of a call; for sessions and their test harness.

    Raises:
        ConfigurationError: It said something else.
        Exception: What it raised.
    """
    said: object = reconciler(call)
    return check_reconciliation(await said if isawaitable(said) else said, call.tool_name)


def check_reconciliation(said: object, tool_name: str) -> Happened | DidNotHappen | StillUnknown:
    """Return what a reconciler said.

    Raises:
        ConfigurationError: It said something else.
    """
    if isinstance(said, Happened | DidNotHappen | StillUnknown):
        return said
    raise ConfigurationError(
        f"the reconciler of {tool_name!r} returned {type(said).__name__}: return Happened, DidNotHappen or StillUnknown"
    )
