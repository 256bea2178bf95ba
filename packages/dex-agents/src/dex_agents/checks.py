"""Checks of what a program gives, for this package and for adapters: a wrong value is named where it is given."""

import math
from collections.abc import Mapping
from datetime import timedelta
from types import UnionType
from typing import Final, TypeGuard, cast

from dex_agents.errors import ConfigurationError
from dex_agents.tools import ToolEffect, ToolPolicies, ToolPolicy

SHORTEST_DEADLINE: Final = timedelta(seconds=1)
"""Timers of a session have whole seconds."""

_SHOWN: Final = (str, int, float, timedelta, type(None))


def check(name: str, value: object, fits: bool, remedy: str) -> None:
    """Refuse a value that does not fit.

    Args:
        name: What the program calls it.
        value: Shown when it is plain; of anything else, which may hold a secret, only the type is.
        fits: Whether it may be so.
        remedy: What to give instead.

    Raises:
        ConfigurationError: It does not fit.
    """
    if not fits:
        shown = f"{value!r:.100}" if isinstance(value, _SHOWN) else f"a {type(value).__qualname__}"
        raise ConfigurationError(f"{name} is {shown}: {remedy}")


def check_instance(name: str, value: object, kind: type | UnionType, remedy: str) -> None:
    """Refuse a value of another type; as `check`."""
    check(name, value, isinstance(value, kind), remedy)


def is_whole(value: object, *, least: int = 1) -> TypeGuard[int]:
    """Whether a value is a whole number, and not a bool, of at least `least`."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a finite number, and not a bool."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_deadline(value: object) -> bool:
    """Whether something can wait so long: None for ever, or at least one second."""
    return value is None or (isinstance(value, timedelta) and value >= SHORTEST_DEADLINE)


def check_callables(**values: object) -> None:
    """Refuse values that are neither None nor callable; by name."""
    for name, value in values.items():
        check(name, value, value is None or callable(value), "give a function, or None")


def check_mappings(**values: object) -> None:
    """Refuse values that are neither None nor a mapping by text; by name."""
    for name, value in values.items():
        keys = cast("Mapping[object, object]", value) if isinstance(value, Mapping) else ()
        fits = value is None or (isinstance(value, Mapping) and all(isinstance(key, str) for key in keys))
        check(name, cast("object", value), fits, "give a mapping whose keys are texts, or None")


def check_policies(tools: ToolPolicies | None) -> ToolPolicies:
    """Return the policies of an agent's tools; none for None.

    Raises:
        ConfigurationError: They are no mapping of names to `ToolPolicy` or `ToolEffect`, or a deadline is too short.
    """
    check_mappings(tools=tools)
    policies: ToolPolicies = {} if tools is None else tools
    given = cast("Mapping[str, object]", policies)
    for name, policy in given.items():
        remedy = "give a ToolEffect, for example ToolEffect.READ, or a ToolPolicy"
        check(f"tools[{name!r}]", policy, isinstance(policy, ToolPolicy | ToolEffect), remedy)
        if isinstance(policy, ToolPolicy):
            remedy = "give at least one second, or None for the session's `interrupt_deadline`"
            deadline = policy.approval_deadline
            check(f"the approval_deadline of tools[{name!r}]", deadline, is_deadline(deadline), remedy)
    return policies
