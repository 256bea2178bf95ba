"""Every name of Pydantic AI that its documentation does not promise, in one place, checked at import.

`AgentRun.ctx` is public, but what lies behind it is not documented. A release that renames one of these names makes the
import fail with a sentence that says so, instead of making a session go wrong.
"""

import importlib
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from functools import cache
from importlib.metadata import version
from typing import Any, Final, Generic, Literal, TypeVar

from pydantic_ai import AgentRun, RunContext
from pydantic_ai.models import Model
from pydantic_ai.tool_manager import ToolManager
from pydantic_ai.usage import RunUsage, UsageLimits

SUPPORTED_RELEASES: Final = ">=2.64,<2.70"
"""The releases of pydantic-ai-slim that this adapter was tested with; the package metadata names the same."""

DISTRIBUTION: Final = "pydantic-ai-slim"

_FIELDS: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("pydantic_ai._agent_graph", "GraphAgentState"): (
        "message_history",
        "usage",
        "run_step",
        "run_id",
        "output_retries_used",
        "default_output_modes",
        "pending_messages",
    ),
    ("pydantic_ai._agent_graph", "GraphAgentDeps"): (
        "user_deps",
        "prompt",
        "model",
        "usage_limits",
        "end_strategy",
        "tool_manager",
        "established_tool_names",
    ),
    ("pydantic_ai.tool_manager", "ToolManager"): (
        "ctx",
        "tools",
        "failed_tools",
        "succeeded_tools",
        "availability_refused",
    ),
    ("pydantic_ai._enqueue", "PendingMessage"): ("messages", "priority", "_tool_call"),
}
_NOT_EXECUTED_TEXT: Final = ("pydantic_ai._tool_execution", "_TOOL_SKIPPED_FINAL_ALREADY_PROCESSED")

DepsT = TypeVar("DepsT")


@cache
def installed_version() -> str:
    """Return the installed release of Pydantic AI."""
    # Reads a file, and every Step asks for it.
    return version(DISTRIBUTION)


def _look_up(module: str, name: str) -> object:
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ImportError(
            f"{DISTRIBUTION} {installed_version()} has no {module}.{name}, which dex-agents-pydantic-ai needs: "
            f"install a release in the range {SUPPORTED_RELEASES}"
        ) from error


def check_names(expected: dict[tuple[str, str], tuple[str, ...]] = _FIELDS) -> None:
    """Check that every undocumented class still has the fields that this adapter uses.

    Args:
        expected: Field names by module and class name.

    Raises:
        ImportError: A class or a field is missing; the text names it, the installed release and the supported range.
    """
    for (module, name), wanted in expected.items():
        found = _look_up(module, name)
        present = {field.name for field in fields(found)} if is_dataclass(found) else set[str]()
        missing = [field for field in wanted if field not in present]
        if missing:
            raise ImportError(
                f"{DISTRIBUTION} {installed_version()} has no {', '.join(missing)} in {module}.{name}, which "
                f"dex-agents-pydantic-ai needs: install a release in the range {SUPPORTED_RELEASES}"
            )


check_names()

NOT_EXECUTED_TEXT: Final = str(_look_up(*_NOT_EXECUTED_TEXT))
"""What the model reads as the result of a call that was skipped because an output tool ended the run."""


class RunInternals(Generic[DepsT]):
    """Reads and writes what one run keeps behind `AgentRun.ctx`."""

    def __init__(self, run: AgentRun[DepsT, Any]) -> None:
        context = run.ctx
        self._state = context.state
        self._deps = context.deps

    @property
    def usage(self) -> RunUsage:
        """What the run has used so far; the run counts in this very object."""
        return self._state.usage

    @property
    def usage_limits(self) -> UsageLimits:
        """The limits that hold for the run."""
        return self._deps.usage_limits

    @property
    def end_strategy(self) -> Literal["early", "graceful", "exhaustive"]:
        """What happens to other calls when an output tool succeeds."""
        return self._deps.end_strategy

    @property
    def model(self) -> Model:
        """The model of the next request, as far as it is known before it."""
        return self._deps.model

    @property
    def tool_manager(self) -> ToolManager[DepsT]:
        """The tools of the current run step."""
        return self._deps.tool_manager

    @property
    def run_step(self) -> int:
        """How many model requests the run has made."""
        return self._state.run_step

    @property
    def output_retries(self) -> int:
        """How often the model was asked for another output."""
        return self._state.output_retries_used

    @property
    def output_modes(self) -> dict[str, str]:
        """The output mode that each model's first request resolved to."""
        return dict(self._state.default_output_modes)

    @property
    def tool_retries(self) -> dict[str, int]:
        """Retries by tool name, as the current run step started with them."""
        context = self.tool_manager.ctx
        return {} if context is None else dict(context.retries)

    @property
    def established_tools(self) -> set[str] | None:
        """The function tools of the run's first request; others count as added in the middle of the run."""
        return self._deps.established_tool_names

    def restore_counters(
        self, *, run_step: int, output_retries: int, output_modes: dict[str, str], established: Iterable[str] | None
    ) -> None:
        """Let a new run count on where an earlier one of the same turn stopped."""
        self._state.run_step = run_step
        self._state.output_retries_used = output_retries
        # A wrong mode cannot come from us: these are words that the framework gave in an earlier Step.
        self._state.default_output_modes = dict(output_modes)  # pyright: ignore[reportAttributeAccessIssue]
        self._deps.established_tool_names = None if established is None else set(established)

    def restore_turn(self, *, run_id: str, prompt: Any) -> None:
        """Give a new run the turn's earlier messages as its own, and the user's prompt as its prompt.

        The messages come without a run id, because a run refuses a history that already has its id.
        """
        for message in self._state.message_history:
            if message.run_id is None:
                message.run_id = run_id
        if self._deps.prompt is None:
            self._deps.prompt = prompt

    def restore_tools(self, *, retries: dict[str, int], refused: Iterable[str]) -> None:
        """Make the next run step start with these retries; must be called before the first step."""
        manager = self.tool_manager
        manager.availability_refused = set(refused)
        # The run step that follows takes its retries from the context of the step before, so that is what it gets.
        manager.ctx = RunContext(
            deps=self._deps.user_deps, model=self._deps.model, usage=self._state.usage, run_step=-1, retries=retries
        )

    def record_attempts(self, *, failed: Iterable[str], succeeded: Iterable[str]) -> None:
        """Count attempts of tools that ran elsewhere; the framework merges them into the next step's retries."""
        self.tool_manager.failed_tools |= set(failed)
        self.tool_manager.succeeded_tools |= set(succeeded)


def pending_origin(pending: object) -> tuple[str, int] | None:
    """Return the tool call, and its run step, next to whose result an enqueued message belongs."""
    return getattr(pending, "_tool_call")  # noqa: B009  the name is private, and checked at import


def set_pending_origin(pending: object, origin: tuple[str, int] | None) -> None:
    """Say next to which tool call's result an enqueued message belongs."""
    setattr(pending, "_tool_call", origin)  # noqa: B010  the name is private, and checked at import
