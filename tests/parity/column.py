"""What an adapter must offer to take part in the table."""

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, cast

import pytest
from pydantic import JsonValue

from dex_agents.messages import TextBlock
from dex_agents.runner import AgentFrameworkRunner
from parity.scenario import Delegate, HandOff, ModelPath, Scenario, Structured
from parity.toolbox import Toolbox
from support.fake_provider import FakeProvider, Reply
from support.installed import is_installed

COLUMNS: Final[Mapping[str, str]] = {
    "claude-agent-sdk": "parity.adapters.claude_agent_sdk:ClaudeAgentSDKColumn",
    "google-adk": "parity.adapters.google_adk:GoogleADKColumn",
    "langgraph": "parity.adapters.langgraph:LangGraphColumn",
    "openai-agents": "parity.adapters.openai_agents:OpenAIAgentsColumn",
    "pydantic-ai": "parity.adapters.pydantic_ai:PydanticAIColumn",
}
"""Where each adapter's column is, by the name with which its test ids begin."""


@dataclass(frozen=True)
class Ending:
    """How one turn ended.

    Attributes:
        output: The answer: text, or the typed output as JSON.
        error: Why there is none.
    """

    output: JsonValue = None
    error: str | None = None


@dataclass
class Run:
    """What one way of running a scenario did.

    Attributes:
        requests: What the model was shown, request by request, as JSON.
        endings: How the turns ended.
        executed: What the tools did, in any order.
        usage: Requests, input tokens and output tokens of all turns; None when this way cannot tell.
    """

    requests: list[JsonValue]
    endings: list[Ending] = field(default_factory=list[Ending])
    executed: list[str] = field(default_factory=list[str])
    usage: tuple[int, int, int] | None = None


@dataclass(frozen=True)
class Difference:
    """A known and intended difference between a plain run and a session.

    Attributes:
        reason: What differs and why, in one sentence; also a line of the adapter's README.
        check: Gets the plain and the durable run, and asserts that they differ in this way and in no other.
    """

    reason: str
    check: Callable[[Run, Run], None]


class Stage:
    """What a column gets for one run of one scenario.

    Attributes:
        scenario: The scenario.
        path: How the model is reached.
        toolbox: The tools of this run.
        provider: The fake provider, with the script loaded; not used on the path `scripted`.
        shown: On the path `scripted` the column's model appends here what it is shown, as JSON.
    """

    def __init__(self, scenario: Scenario, path: ModelPath, provider: FakeProvider, replies: Sequence[Reply]) -> None:
        self.scenario = scenario
        self.path: ModelPath = path
        self.toolbox = Toolbox()
        self.provider = provider
        self.shown: list[JsonValue] = []
        self._replies = replies

    def next_reply(self) -> Reply:
        """Return what a scripted model says to its next request, after that was appended to `shown`."""
        if len(self.shown) > len(self._replies):
            raise AssertionError(f"the script has {len(self._replies)} replies, and the model is asked once more")
        return self._replies[len(self.shown) - 1]

    def texts(self) -> list[str]:
        """Return the user's turns, for a scenario without media."""
        return [
            turn if isinstance(turn, str) else "".join(_text(block) for block in turn) for turn in self.scenario.turns
        ]


class Column(Protocol):
    """One adapter's column of the table. Subclass it: what has a body here is a default.

    A column is made once for all scenarios and holds nothing of a run.
    """

    adapter: str
    """The adapter's name, with which the test ids begin."""

    paths: tuple[ModelPath, ...]
    """How this framework's model can be reached here."""

    skipped: Mapping[str, str]
    """Scenarios that the framework cannot do, by name, each with the reason that the skipped test shows."""

    differences: Mapping[str, Difference]
    """Scenarios in which a session differs from a plain run by intent."""

    warnings: Sequence[str] = ()
    """Warnings of the framework about itself, as filters of pytest; all others fail a test."""

    def script(self, scenario: Scenario) -> Sequence[Reply]:
        """Return the script in a provider's words; for a framework whose words depend on the scenario."""
        return [said if isinstance(said, Reply) else self.reply(said) for said in scenario.says]

    def reply(self, said: Structured | Delegate | HandOff) -> Reply:
        """Say in plain words of a provider what the framework expects there: which tool call, or which text."""
        ...

    async def run_plainly(self, stage: Stage) -> Run:
        """Run all turns as the framework's users run them without any session, approvals included.

        Give the agent the instructions `INSTRUCTIONS`, and a budget of 2 retries where the framework has one. Only
        `endings` and, if known, `usage` need to be filled in; the harness adds the rest.
        """
        ...

    def open_runner(self, stage: Stage) -> AbstractAsyncContextManager[Callable[[], AgentFrameworkRunner]]:
        """Open what the runner needs (a model's client), and yield a function that makes a fresh runner each time.

        The runner has the same agent as the plain run, built anew, and the policies `toolbox.POLICIES`.
        """
        ...

    def tool_name(self, shown: str) -> str:
        """Return the toolbox's name of a tool, for a framework that shows the model another one."""
        return shown

    def normalise(self, body: JsonValue) -> JsonValue:
        """Replace what is random in a provider request; called for every request of a real client."""
        return body


def find_column(adapter: str) -> Column:
    """Return an adapter's column."""
    module, _, name = COLUMNS[adapter].partition(":")
    made: Callable[[], Any] = getattr(importlib.import_module(module), name)
    return cast("Column", made())


def column_and_marks(adapter: str) -> tuple[Column | None, list[pytest.MarkDecorator]]:
    """Return an adapter's column and the marks of its tests; where it is not installed none, and a mark that skips."""
    package = f"dex_agents_{adapter.replace('-', '_')}"
    if not is_installed(package):
        return None, [pytest.mark.skip(reason=f"{package} is not installed")]
    column = find_column(adapter)
    return column, [pytest.mark.filterwarnings(quiet) for quiet in column.warnings]


def provider_cases(own_tests: Mapping[str, str]) -> Iterator[object]:
    """Iterate over the columns and the ways to reach a provider, as a test's parameters `column` and `path`.

    Args:
        own_tests: Adapters that are left out, each with the reason that the skipped test shows.
    """
    for adapter in COLUMNS:
        if adapter in own_tests:
            yield pytest.param(None, "scripted", id=adapter, marks=pytest.mark.skip(reason=own_tests[adapter]))
            continue
        column, marks = column_and_marks(adapter)
        if column is None:
            yield pytest.param(None, "scripted", id=f"{adapter}-not-installed", marks=marks)
            continue
        for path in column.paths:
            if path != "scripted":
                yield pytest.param(column, path, id=f"{adapter}-{path}", marks=marks)


def _text(block: object) -> str:
    assert isinstance(block, TextBlock), f"{block} is no text"
    return block.text
