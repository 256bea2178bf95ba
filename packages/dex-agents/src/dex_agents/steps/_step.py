"""What all Steps of a session have in common."""

from typing import TYPE_CHECKING, TypeVar

from dex import AsyncContext, Step, StepDecision, StepOptions, Wait

from dex_agents._stored import Stored
from dex_agents._turn.services import SessionServices
from dex_agents.steps import _options

InputT = TypeVar("InputT", bound=Stored)


class SessionStep(Step[InputT]):
    """A Step that holds the session's services.

    Without an override of `get_step_options` it has the options of a Step that only waits and records; what a Step
    loads and locks comes with each movement to it (`_moves`).
    """

    def __init__(self, services: SessionServices) -> None:
        self._services = services

    def get_step_options(self) -> StepOptions:
        """Return the options of an execution that no movement describes."""
        return _options.SPINE

    if TYPE_CHECKING:
        # The SDK declares its handlers as plain methods and accepts coroutines; said here once for all Steps. Not at
        # run time: the SDK asks each class whether it has a `wait_for` of its own.
        async def execute(self, context: AsyncContext, input: InputT) -> StepDecision: ...  # pyright: ignore[reportIncompatibleMethodOverride]
        async def wait_for(self, context: AsyncContext, input: InputT) -> Wait: ...  # pyright: ignore[reportIncompatibleMethodOverride]
