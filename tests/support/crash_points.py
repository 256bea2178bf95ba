"""Stops a Worker at a named point of a session: before or after the code of any Step.

Only test Workers import it. `install` wraps the methods of the Step classes in this process, so that the product has
no hooks. A point is `<Step execution>.<method>.<before|after>`, for example `RunModel-1.execute.after`. Each is
written to the file in `CRASH_POINTS` when it is reached. The first process that reaches the point in `CRASH_POINT`
stays there until the file in `CRASH_RELEASE` exists, so that a test can kill processes meanwhile.
"""

import functools
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from dex import AsyncContext

from dex_agents import session_flow
from dex_agents.steps._step import SessionStep
from support.fake_provider import FileGate

METHODS: Final = ("wait_for", "execute")

StepMethod = Callable[[Any, AsyncContext, Any], Awaitable[Any]]


def install() -> None:
    """Wrap every Step class of a session; to be called once, before the Flow is built."""
    for step_class in _step_classes():
        for name in METHODS:
            # Only a class's own method: the SDK asks whether a Step has a `wait_for` at all.
            if name in vars(step_class):
                setattr(step_class, name, _stopping(name, vars(step_class)[name]))


def reached(log: Path) -> list[str]:
    """Return the points that were reached so far, in order; a repeated attempt reaches them again."""
    return log.read_text(encoding="utf-8").splitlines() if log.exists() else []


def held_marker(log: Path) -> Path:
    """Return the file that exists once a process stays at its point."""
    return log.with_suffix(".held")


def _step_classes() -> list[type[SessionStep[Any]]]:
    values = vars(session_flow).values()
    return [value for value in values if isinstance(value, type) and issubclass(value, SessionStep)]


def _stopping(name: str, method: StepMethod) -> StepMethod:
    @functools.wraps(method)
    async def run(self: Any, context: AsyncContext, input: Any) -> Any:
        point = f"{context.step_execution_id}.{name}"
        await _reach(f"{point}.before")
        result = await method(self, context, input)
        await _reach(f"{point}.after")
        return result

    return run


async def _reach(point: str) -> None:
    log = Path(os.environ["CRASH_POINTS"])
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, f"{point}\n".encode())
    finally:
        os.close(descriptor)
    if point != os.environ["CRASH_POINT"]:
        return
    try:
        held_marker(log).touch(exist_ok=False)
    except FileExistsError:
        return  # a later attempt
    await FileGate(Path(os.environ["CRASH_RELEASE"])).wait()
