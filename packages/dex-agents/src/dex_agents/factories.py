"""What an application makes for one Step, such as a connection: made, used and closed for adapters.

```python
async with open_for_step(self.deps, request.step) as deps:
    ...
```
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncContextDecorator, asynccontextmanager
from inspect import isawaitable
from typing import TypeVar, cast

from dex_agents.runner import StepContext

MadeT = TypeVar("MadeT")

StepFactory = Callable[[StepContext], MadeT | Awaitable[MadeT] | AbstractAsyncContextManager[MadeT]]
"""Makes something for one Step: a plain or async function, or one made with `asynccontextmanager`."""


@asynccontextmanager
async def open_for_step(factory: StepFactory[MadeT] | None, step: StepContext) -> AsyncGenerator[MadeT | None]:
    """Make something for one Step, and close it behind the Step when it wants to be closed.

    Args:
        factory: Makes it; None makes None.
        step: The Step.
    """
    if factory is None:
        yield None
        return
    made = factory(step)
    # It may have `__aenter__` itself (a client that is shared), and must not be closed by a Step.
    if isinstance(made, AsyncContextDecorator):
        async with cast("AbstractAsyncContextManager[MadeT]", made) as opened:
            yield opened
    elif isawaitable(cast("object", made)):
        yield await cast("Awaitable[MadeT]", made)
    else:
        yield cast("MadeT", made)
