"""Turning a session's settings into what a model call needs, on the Worker.

```python
async def resolve(step: StepContext) -> ResolvedSettings:
    plan = await plans.of(step.text_setting("customer"))
    return ResolvedSettings(model=plan.model, instructions=plan.instructions, reasoning_effort="high")


flow = session_flow(agent, settings_resolver=resolve)
```

Settings are references: they are stored, and snapshots show them. What a resolver makes of them (a client with a key, a
prompt from a file) lives as long as one Step and is never stored.
"""

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Final, get_args

from dex_agents.errors import ConfigurationError
from dex_agents.runner import ReasoningEffort, ResolvedSettings, StepContext

__all__ = ["REASONING_EFFORTS", "ReasoningEffort", "ResolvedSettings", "SettingsResolver", "resolve_settings"]

REASONING_EFFORTS: Final[tuple[str, ...]] = get_args(ReasoningEffort)
"""What `reasoning_effort` may be; which of them a model knows is its provider's matter."""

SettingsResolver = Callable[[StepContext], ResolvedSettings | Awaitable[ResolvedSettings]]
"""Makes what a Step needs of its turn's settings; called in each Step that runs the model or a tool.

A `TurnFailedError` that it raises fails the turn at once; anything else is repeated with the Step.
"""


async def resolve_settings(step: StepContext, resolver: SettingsResolver) -> ResolvedSettings:
    """Call a resolver; for sessions and their test harness.

    Raises:
        ConfigurationError: It returned something else.
        Exception: What it raised.
    """
    made = resolver(step)
    resolved = await made if isawaitable(made) else made
    if not isinstance(resolved, ResolvedSettings):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(f"the settings resolver returned {type(resolved).__name__}: return ResolvedSettings")
    return resolved
