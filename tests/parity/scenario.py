"""A scenario: what the agent is, what its model says, and what people say, in words that belong to no framework."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from pydantic import BaseModel, JsonValue

from dex_agents.messages import Block
from dex_agents.tools import Answer
from support.fake_provider import Reply, ToolCall

ModelPath = Literal["scripted", "openai-chat", "openai-responses", "anthropic", "gemini"]
"""How the model is reached: the framework's own scripted model, or a real provider client on the fake provider."""

INSTRUCTIONS: Final = "Be brief."
HELPER_INSTRUCTIONS: Final = "You are the helper."
OTHER_MODEL: Final = "other"
"""What a session's `model` setting says in scenarios that override the model; a column maps it to a second model."""


class Report(BaseModel):
    """A report about the stock."""

    summary: str
    pieces: int


@dataclass(frozen=True)
class Structured:
    """The model answers with the typed output, the way in which the framework asks for it.

    Attributes:
        value: The output's fields; need not be valid.
        beside: Function calls in the same response.
        call_id: Of the output call, where the framework uses one.
    """

    value: Mapping[str, JsonValue]
    beside: Sequence[ToolCall] = ()
    call_id: str = "output"


@dataclass(frozen=True)
class Delegate:
    """The model calls the tool `ask_helper`, behind which a second agent answers; its reply follows in the script."""

    question: str
    call_id: str


@dataclass(frozen=True)
class HandOff:
    """The model hands the conversation over to the agent `helper`, which says all that follows."""

    call_id: str


Says: TypeAlias = Reply | Structured | Delegate | HandOff


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One row of the table.

    Attributes:
        name: Part of the test's id: lower case, words joined by `-`.
        says: What the model says, request by request; helpers of the agent use the same script.
        tools: Names of `Toolbox` tools that the agent has.
        turns: What the user says; the turns of one session.
        decisions: What people answer, by the provider's call id.
        output: The agent's output type; None for text.
        helper: The agent has a second agent `helper`, as the tool `ask_helper` or to hand over to.
        settings: The session's settings: `model` is `OTHER_MODEL`, `instructions` is text.
        streaming: Ask the model for streamed responses.
        request_limit: Most model requests of a turn; None for the framework's default.
        fails: The last turn must end without an answer.
        only_on: Model paths on which the scenario can be told; None for all.
    """

    name: str
    says: Sequence[Says]
    tools: tuple[str, ...] = ("look_up",)
    turns: Sequence[str | Sequence[Block]] = ("go",)
    decisions: Mapping[str, Answer] = field(default_factory=dict[str, Answer])
    output: type[BaseModel] | None = None
    helper: Literal["tool", "handoff"] | None = None
    settings: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    streaming: bool = False
    request_limit: int | None = None
    fails: bool = False
    only_on: tuple[ModelPath, ...] | None = None

    def decision(self, tool: str, arguments: Any) -> Answer:
        """Return what people answer to a call of a tool.

        Raises:
            AssertionError: Nobody was expected to be asked.
        """
        wanted = json.dumps(arguments, sort_keys=True)
        for said in self.says:
            for call in _calls(said):
                if call.name == tool and json.dumps(call.arguments, sort_keys=True) == wanted:
                    if call.id is None or call.id not in self.decisions:
                        break
                    return self.decisions[call.id]
        raise AssertionError(f"people are asked about {tool} {wanted}, which scenario {self.name!r} does not expect")


def _calls(said: Says) -> Sequence[ToolCall]:
    match said:
        case Reply(tool_calls=calls) | Structured(beside=calls):
            return calls
        case Delegate() | HandOff():
            return ()
