"""A small agent without a framework, whose state is a history that a provider would refuse when it is not whole."""

from typing import cast

from pydantic import JsonValue

from dex_agents import current_tool_call
from dex_agents.errors import TurnFailedError
from dex_agents.messages import text_message
from dex_agents.runner import (
    AgentFrameworkRunner,
    BatchSettled,
    CallToolRequest,
    CannotCompactNow,
    Closed,
    CloseTurnRequest,
    CompactOutcome,
    CompactRequest,
    Description,
    Finished,
    FrameworkState,
    ModelOutcome,
    ModelStep,
    NewTurn,
    RunModelRequest,
    Waiting,
)
from dex_agents.tools import Returned, SettledCall, ToolEffect, ToolOutcome, ToolPolicy, ToolRequest
from properties.world import Life

Entry = dict[str, JsonValue]


def check_history(life: Life, history: list[Entry]) -> None:
    """Note what a provider refuses: a call without its answer, an answer without its call, either of them twice."""
    open_calls: JsonValue = None
    for entry in history:
        if open_calls is not None:
            life.check(entry.get("results") == open_calls, f"{open_calls} are answered by {entry}: {history}")
            open_calls = None
        else:
            life.check("results" not in entry, f"{entry} answers nothing: {history}")
            open_calls = entry.get("calls")
    life.check(open_calls is None, f"{open_calls} have no answer: {history}")


def _read(state: FrameworkState | None) -> tuple[list[Entry], list[str]]:
    if state is None:
        return [], []
    value = cast("dict[str, JsonValue]", state.value)
    return cast("list[Entry]", value["history"]), cast("list[str]", value["script"])


def _state(history: list[Entry], script: list[str]) -> FrameworkState:
    value: JsonValue = {"history": cast("JsonValue", history), "script": cast("JsonValue", script)}
    return FrameworkState(framework="plain", framework_version="1", format=1, value=value)


def _results(calls: tuple[SettledCall, ...]) -> Entry:
    return {"results": [settled.call.call_id for settled in calls]}


class PlainAgent(AgentFrameworkRunner):
    """Does what the message says, part by part.

    Args:
        life: The process that it runs in.
    """

    def __init__(self, life: Life) -> None:
        self._life = life

    def describe(self) -> Description:
        return Description(
            framework="plain",
            framework_version="1",
            reads_formats=(1,),
            supports_steering=True,
            supports_compaction=False,
        )

    async def run_model(self, request: RunModelRequest) -> ModelStep:
        history, script = _read(request.state)
        match request.input:
            case NewTurn(content=content, note=note):
                text = "".join(block.text for block in content if block.kind == "text")
                script = [part.strip() for part in text.partition(" ")[2].split(";")] if text[0] == "#" else [text]
                noted: list[Entry] = [{"note": note}] if note else []
                asked: Entry = {"user": text}
                history = [*history, *noted, asked]
            case BatchSettled(calls=calls):
                history = [*history, _results(calls)]
            case _:
                pass
        steered: list[Entry] = [{"user": message.text} for message in request.steering]
        history = [*history, *steered]
        check_history(self._life, history)
        outcome = self._outcome(script[0], request.step.step_number, history)
        said_entry: Entry = {"assistant": "said"}
        if isinstance(outcome, Waiting):
            said_entry = {"calls": [call.call_id for call in outcome.calls]}
        history = [*history, said_entry]
        said = (text_message("assistant", "said"),) if isinstance(outcome, Finished) else ()
        return ModelStep(
            outcome=outcome,
            state=_state(history, script[1:]),
            messages=said,
            steering_taken=len(request.steering),
        )

    def _outcome(self, part: str, step: int, history: list[Entry]) -> ModelOutcome:
        verb, _, rest = part.partition(" ")
        match verb:
            case "recall":
                return Finished(text="\n".join(str(entry["user"]) for entry in history if "user" in entry))
            case "fail":
                raise TurnFailedError("the script fails")
            case "call" | "chain":
                names = rest.split()
                return Waiting(
                    calls=tuple(
                        _request(name, f"{step}-{place}", (place - 1,) if verb == "chain" and place else ())
                        for place, name in enumerate(names)
                    )
                )
            case _:
                return Finished(text="said")

    async def call_tool(self, request: CallToolRequest) -> ToolOutcome:
        running = current_tool_call()
        assert running is not None
        await self._life.run_tool(request.call.name, f"{request.call.name} {running.idempotency_key}")
        return Returned(record=None, text="done")

    async def close_turn(self, request: CloseTurnRequest) -> Closed:
        history, _ = _read(request.state)
        history = [*history, *([_results(request.calls)] if request.calls else [])]
        check_history(self._life, history)
        return Closed(state=_state(history, []))

    async def compact(self, request: CompactRequest) -> CompactOutcome:
        del request
        return CannotCompactNow(reason="it never does")


def _request(name: str, call_id: str, after: tuple[int, ...]) -> ToolRequest:
    effect = ToolEffect.READ if name.startswith("read") else ToolEffect.NON_IDEMPOTENT_WRITE
    policy = ToolPolicy(effect=effect, approval=name.endswith("!"))
    return ToolRequest(call_id=call_id, name=name.rstrip("!"), arguments={}, policy=policy, after=after)
