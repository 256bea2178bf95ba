"""Where a request to a runner comes from: its Step, what the Step is given, and where its live events go."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeVar, cast, get_args

from pydantic import JsonValue

from dex_agents.errors import TurnFailedError

ModelT = TypeVar("ModelT")


class EventSink(Protocol):
    """Live feed of a Step. Never blocks, never raises, and is never the record."""

    def text(self, delta: str, *, owner: str = "") -> None:
        """Pass on a piece of the answer."""
        ...

    def reasoning(self, delta: str, *, owner: str = "") -> None:
        """Pass on a piece of the model's reasoning."""
        ...

    def progress(self, call_id: str, data: JsonValue, *, owner: str = "") -> None:
        """Pass on what a running tool reports; `call_id` is the provider's id."""
        ...


ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


@dataclass(frozen=True, kw_only=True)
class ResolvedSettings:
    """What a resolver (`dex_agents.settings`) makes of a turn's settings for one Step; never stored.

    Attributes:
        model: The framework's model object, or a model's name; None for the agent's own.
        instructions: Beside the agent's own; None for none.
        reasoning_effort: How long the model thinks; None for the agent's own.
    """

    model: object = None
    instructions: str | None = None
    reasoning_effort: ReasoningEffort | None = None


class StopSignal:
    """Says that the Worker which runs a Step is stopping.

    A runner that can end its Step early, with what it has done so far, should do so then (`Again`): another Worker goes
    on. What is still running when the drain timeout is over is cancelled and repeated.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._callbacks: list[Callable[[], object]] = []

    @property
    def is_set(self) -> bool:
        """Whether the Worker is stopping."""
        return self._is_set

    def set(self) -> None:
        """Say so, in the Worker's event loop."""
        self._is_set = True
        for callback in list(self._callbacks):
            callback()

    @contextmanager
    def calls(self, callback: Callable[[], object]) -> Generator[None]:
        """Call `callback` when the Worker begins to stop inside the block; at once when it does already."""
        if self._is_set:
            callback()
        self._callbacks.append(callback)
        try:
            yield
        finally:
            self._callbacks.remove(callback)


@dataclass(frozen=True, kw_only=True)
class StepContext:
    """Where a request comes from.

    Attributes:
        session_id: The session's id.
        turn_id: For example `turn-3`.
        step_number: Counts the RunModel Steps of the session.
        attempt: 1 for the first attempt of this Step.
        settings: This turn's copy of the session's settings: references, never secrets.
        events: The live feed.
        resolved: What the agent's resolver made of the settings; None for an agent without one.
        stopping: Whether the Step's Worker is stopping.
    """

    session_id: str
    turn_id: str
    step_number: int
    attempt: int
    settings: Mapping[str, JsonValue]
    events: EventSink
    resolved: ResolvedSettings | None = None
    stopping: StopSignal = field(default_factory=StopSignal)

    @property
    def instructions(self) -> str | None:
        """The session's own instructions: resolved, or the setting `instructions`.

        Raises:
            TurnFailedError: The setting is no text.
        """
        return self.text_setting("instructions") if self.resolved is None else self.resolved.instructions

    @property
    def reasoning_effort(self) -> ReasoningEffort | None:
        """How long the model thinks: resolved, or the setting `reasoning_effort`.

        Raises:
            TurnFailedError: It is no effort.
        """
        effort = self.text_setting("reasoning_effort") if self.resolved is None else self.resolved.reasoning_effort
        if effort is not None and effort not in get_args(ReasoningEffort):
            known = ", ".join(get_args(ReasoningEffort))
            raise TurnFailedError(f"the reasoning effort is {effort!r}: give one of {known}")
        return cast("ReasoningEffort | None", effort)

    def text_setting(self, name: str) -> str | None:
        """Return a setting that must be text, or None where the session has none.

        Raises:
            TurnFailedError: It is something else.
        """
        value = self.settings.get(name)
        if value is not None and not isinstance(value, str):
            raise TurnFailedError(f"the setting {name!r} is {value!r}: give text")
        return value

    def model_setting(self, models: Mapping[str, ModelT]) -> ModelT | str | None:
        """Return the resolved model, or the one that the setting `model` names; None where neither names one.

        Args:
            models: The models that a session may name; empty if the framework finds each by its name.

        Raises:
            TurnFailedError: It is no text, or none of these models.
        """
        resolved = None if self.resolved is None else self.resolved.model
        if resolved is not None and not isinstance(resolved, str):
            return cast("ModelT", resolved)
        name = self.text_setting("model") if self.resolved is None else resolved
        if name is None:
            return None
        if models and name not in models:
            raise TurnFailedError(f"the setting 'model' is {name!r}: this agent knows {', '.join(sorted(models))}")
        return models.get(name, name)
