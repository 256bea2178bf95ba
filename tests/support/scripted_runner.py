"""A tiny agent without a framework, for tests of the session itself.

A user message is its script: one line a model Step.

```
call read_a, write_b!      ask for these calls in parallel; `!` means that the policy wants an approval
chain read_a, write_b      the same, one after another
again                      go on without waiting
ask colour, size           the agent itself asks these questions
fail                       end the turn, finally
crash                      raise, so that the Step is retried
say hello                  answer
sleep                      hold the model call for 60 s
speak hello                the same, after these words have been streamed
stream-crash hello         answer, and let the first attempt raise when it has said all
stream-hold hello          the same, but the first attempt holds for 60 s
recall                     answer with everything that the model has seen
pad 300                    answer with so many characters
```

A tool's name decides what it does: `read_`, `idem_` and `write_` give its effect; `_raises`, `_nothing`, `_asks`,
`_external`, `_later`, `_chooses`, `_orders` and `_resumes` in the name decide how it behaves.
Every run is appended to the file in `SCRIPTED_RUNNER_LOG`.
"""

import asyncio
import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Final, cast

from pydantic import JsonValue

from dex_agents import UserQuestion, ask_user, ask_user_all, resume_later
from dex_agents.errors import ToolDidNotHappen, TurnFailedError
from dex_agents.messages import Message, TextBlock, text_message
from dex_agents.runner import (
    Again,
    BatchSettled,
    CallToolRequest,
    CannotCompactNow,
    Closed,
    CloseTurnRequest,
    Compacted,
    CompactOutcome,
    CompactRequest,
    Description,
    Finished,
    FrameworkState,
    KnownTool,
    ModelOutcome,
    ModelStep,
    NewTurn,
    RunModelRequest,
    Usage,
    Waiting,
)
from dex_agents.tools import (
    Asks,
    Question,
    RetryLater,
    Returned,
    SettledCall,
    ToolEffect,
    ToolOutcome,
    ToolPolicy,
    ToolRequest,
    current_tool_call,
)
from support.waiting import wait_for

LOG_VARIABLE = "SCRIPTED_RUNNER_LOG"

ORDER: Final = (
    UserQuestion(prompt="How many?", answer_type=int, id="count"),
    UserQuestion(prompt="Which colour?", id="colour", deadline=timedelta(seconds=1)),
)
"""What `_orders` asks; the colour cannot wait for long."""


_ARGUMENTS: Final[JsonValue] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def note_run(kind: str, **fields: str | int) -> None:
    """Append one line to the log outside the session."""
    path = os.environ.get(LOG_VARIABLE)
    if path:
        line = json.dumps({"kind": kind, "pid": os.getpid(), **fields})
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def read_runs(path: Path) -> list[dict[str, str | int]]:
    """Return the log's lines."""
    if not path.exists():
        return []
    return [cast("dict[str, str | int]", json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


class ScriptedRunner:
    """Runs the script in the user's message; its state is what a model would have seen, as lines.

    Args:
        compacts: It can shorten what the model has seen, to a summary and the newest two lines. A line with
            `no-summary` makes the summary's model call raise twice, `blocks-summary` holds its first run for 60 s,
            `cannot-cut` refuses, and `takes-batch` takes the batch.
    """

    def __init__(self, *, compacts: bool = False) -> None:
        self._compacts = compacts

    def describe(self) -> Description:
        """Say what this is."""
        return Description(
            framework="scripted",
            framework_version="1",
            reads_formats=(1,),
            supports_steering=False,
            supports_compaction=self._compacts,
            tools=(KnownTool(name="write_b", arguments_schema=_ARGUMENTS),),
        )

    async def run_model(self, request: RunModelRequest) -> ModelStep:
        """Run the next line of the script."""
        note_run("model", turn=request.step.turn_id, attempt=request.step.attempt)
        seen, script = _read(request.state)
        match request.input:
            case NewTurn(content=content, note=note):
                text = "".join(block.text for block in content if isinstance(block, TextBlock))
                script = [line.strip() for line in text.splitlines()]
                seen += [*([f"note: {note}"] if note else []), f"user: {text}"]
            case BatchSettled(calls=calls, answers=answers):
                seen += [_result_line(call) for call in calls]
                seen += [f"answer {answer.question_id}: {answer.value}" for answer in answers]
            case _:
                seen.append("continue")
        seen += [f"steering: {message.text}" for message in request.steering]
        if request.step.settings:
            seen.append(f"settings: {json.dumps(dict(request.step.settings))}")
        if request.step.resolved is not None:
            step = request.step
            seen.append(f"resolved: {step.model_setting({})}, {step.instructions}, {step.reasoning_effort}")
        line, rest = script[0], script[1:]
        if line.startswith("speak"):
            request.step.events.text(f"{line.removeprefix('speak ')} ")
            note_run("spoken")
        if line.startswith(("sleep", "speak")) or (line == "again-sleep-once" and request.step.attempt == 1):
            await asyncio.sleep(60)
        if line.startswith("stream-"):
            await _stream_badly(line, request)
        outcome = self._outcome(line, request, seen)
        messages: tuple[Message, ...] = ()
        if isinstance(outcome, Finished):
            for start in range(0, len(outcome.text), 5):
                request.step.events.text(outcome.text[start : start + 5])
            messages = (text_message("assistant", outcome.text),)
            seen.append(f"assistant: {outcome.text}")
        value: JsonValue = {"seen": cast("list[JsonValue]", seen), "script": cast("list[JsonValue]", rest)}
        return ModelStep(
            outcome=outcome,
            state=_state(value),
            messages=messages,
            usage=Usage(requests=1, input_tokens=len(seen)),
            steering_taken=len(request.steering),
        )

    async def call_tool(self, request: CallToolRequest) -> ToolOutcome:
        """Run a tool by the meaning of its name."""
        running = current_tool_call()
        assert running is not None
        assert running.idempotency_key == request.idempotency_key
        name = request.call.name
        note_run("tool", name=name, key=request.idempotency_key, attempt=request.step.attempt)
        if "_blocks" in name:
            await _block(name)
        if "_sleeps" in name:
            await asyncio.sleep(60)
        if "_meet" in name:
            await _meet()
        if "_huge" in name:
            return Returned(record={"value": "x" * 3_000_000}, text="huge")
        if "_raises" in name:
            raise ValueError(f"{name} broke")
        if "_nothing" in name:
            raise ToolDidNotHappen("refused before anything was written")
        if "_later" in name and request.resume is None and running.attempt == 1 and _runs(name) == 1:
            return RetryLater(after_seconds=1, reason="not yet")
        if "_asks" in name and not request.answers:
            question = Question(id="sure", kind="approval", prompt=f"{name}?", about_this_call=True)
            return Asks(questions=(question,), resume={"asked": True})
        if "_external" in name and not request.answers:
            return Asks(questions=(Question(id="result", kind="external_result", prompt=name),))
        if (asked := _ask(name, running.resumed)) is not None:
            return Returned(record={"value": asked}, text=f"{name} got {asked}")
        arguments = request.call.arguments if request.arguments is None else request.arguments
        answered = [answer.value for answer in request.answers if answer.value is not None]
        return Returned(record={"value": name}, text=f"{name} did {json.dumps(answered or arguments)}")

    async def close_turn(self, request: CloseTurnRequest) -> Closed:
        """Write the results down; drop the script."""
        seen, _ = _read(request.state)
        seen += [_result_line(call) for call in request.calls]
        return Closed(state=_state({"seen": cast("list[JsonValue]", seen), "script": []}))

    async def compact(self, request: CompactRequest) -> CompactOutcome:
        """Count what is old; nothing else is worth remembering here."""
        note_run("compact", turn=request.step.turn_id, attempt=request.step.attempt)
        seen, script = _read(request.state)
        said = "\n".join(seen)
        if "cannot-cut" in said or not self._compacts:
            return CannotCompactNow(reason="the script says so")
        if "no-summary" in said and _runs("", "compact") <= 2:
            raise RuntimeError("the summary's model call broke")
        if "blocks-summary" in said:
            await _block("", kind="compact")
        taken = request.batch is not None and "takes-batch" in said
        if request.batch is not None and taken:
            seen += [_result_line(call) for call in request.batch.calls]
        old, new = seen[:-2], seen[-2:]
        summary = f"{sum(_weight(line) for line in old)} lines"
        value: JsonValue = {"seen": [f"summary: {summary}", *new], "script": cast("list[JsonValue]", script)}
        kept = sum(line.startswith("user: ") for line in new)
        return Compacted(
            state=_state(value),
            summary=summary,
            folded_before_step=request.first_step_of(kept or (0 if request.batch is None and not script else 1)),
            batch_taken=taken,
            usage=Usage(requests=1, input_tokens=len(old)),
        )

    def _outcome(self, line: str, request: RunModelRequest, seen: list[str]) -> ModelOutcome:
        verb, _, rest = line.partition(" ")
        match verb:
            case "call" | "chain":
                names = [name.strip() for name in rest.split(",")]
                return Waiting(
                    calls=tuple(
                        _request(name, position, chained=verb == "chain") for position, name in enumerate(names)
                    )
                )
            case "again-crash-once" if request.step.attempt == 1:
                raise RuntimeError("the first attempt crashes")
            case "again" | "again-crash-once" | "again-sleep-once":
                return Again(reason="the script says so")
            case "ask":
                return Waiting(
                    questions=tuple(
                        Question(id=each, kind="answer", prompt=f"which {each}?") for each in rest.split(", ")
                    )
                )
            case "fail":
                raise TurnFailedError(rest or "the script fails")
            case "crash":
                raise RuntimeError(rest or "the script crashes")
            case "crash-once":
                if request.step.attempt == 1:
                    raise RuntimeError("the first attempt crashes")
                return Finished(text=rest)
            case "pad":
                return Finished(text="x" * int(rest))
            case "recall":
                return Finished(text="\n".join(seen))
            case _:
                return Finished(text=rest, output={"said": rest})


def _ask(name: str, resumed: int) -> str | None:
    """Ask the session what the tool's name says; returns what came of it."""
    if "_resumes" in name and not resumed:
        resume_later(after=timedelta(seconds=1), reason="not yet")
    if "_chooses" in name:
        return ask_user("Which size?", choices=["S", "M"])
    if "_orders" in name:
        count, colour = ask_user_all(ORDER)
        return f"{count + 1} {colour}"
    return None


def seen_by_model(state: FrameworkState | None) -> list[str]:
    """Return what a model would have seen."""
    return _read(state)[0]


def _request(name: str, position: int, *, chained: bool) -> ToolRequest:
    plain = name.rstrip("!")
    effects = {
        "read": ToolEffect.READ,
        "idem": ToolEffect.IDEMPOTENT_WRITE,
        "write": ToolEffect.NON_IDEMPOTENT_WRITE,
    }
    effect = effects.get(plain.split("_")[0], ToolEffect.UNCLASSIFIED)
    return ToolRequest(
        call_id=f"p{position}",
        name=plain,
        arguments={"n": position},
        policy=ToolPolicy(effect=effect, approval=name.endswith("!")),
        after=(position - 1,) if chained and position else (),
    )


def _result_line(call: SettledCall) -> str:
    settlement = call.settlement
    text = settlement.text if isinstance(settlement, Returned) else settlement.message
    return f"{call.call.name} -> {settlement.kind}: {text}"


def _weight(line: str) -> int:
    """Return how many lines a line stands for: a summary for all that it counted."""
    return int(line.split()[1]) if line.startswith("summary: ") else 1


def _state(value: JsonValue) -> FrameworkState:
    return FrameworkState(framework="scripted", framework_version="1", format=1, value=value)


def _read(state: FrameworkState | None) -> tuple[list[str], list[str]]:
    if state is None:
        return [], []
    value = cast("dict[str, list[str]]", state.value)
    return list(value["seen"]), list(value["script"])


def _runs(name: str, kind: str = "tool") -> int:
    path = os.environ.get(LOG_VARIABLE)
    runs = read_runs(Path(path)) if path else []
    return sum(run["kind"] == kind and run.get("name", "") == name for run in runs) if path else 1


async def _stream_badly(line: str, request: RunModelRequest) -> None:
    """Say the answer in the first attempt, which then does not come to its end."""
    if request.step.attempt > 1:
        return
    verb, _, text = line.partition(" ")
    request.step.events.text(f"lost {text}")
    request.step.events.reasoning("lost reasoning")
    if verb == "stream-crash":
        raise ConnectionError("the model's stream broke")
    await asyncio.sleep(60)


async def _block(name: str, kind: str = "tool") -> None:
    """Hold the first run of the tool, at most 60 s, so that a test can kill it in the middle."""
    if _runs(name, kind) == 1:
        await asyncio.sleep(60)


async def _meet() -> None:
    """Hold a run, at most 5 s, until two tools have started."""
    path = Path(os.environ[LOG_VARIABLE])

    async def two() -> bool:
        return sum(1 for run in read_runs(path) if run["kind"] == "tool") >= 2

    await wait_for(two, what="two running tools")
