"""The in-memory session, driven with a small hand-written runner: a script is its model, lines of text its state."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import cast

import pytest
from pydantic import JsonValue

from dex_agents.errors import ToolDidNotHappen, TurnFailedError
from dex_agents.messages import CallBlock, Message, TextBlock
from dex_agents.runner import (
    Again,
    BatchSettled,
    CallToolRequest,
    CannotCompactNow,
    Closed,
    CloseTurnRequest,
    CompactRequest,
    Description,
    Finished,
    FrameworkState,
    ModelOutcome,
    ModelStep,
    NewTurn,
    RunModelRequest,
    Usage,
    Waiting,
)
from dex_agents.testing import (
    InMemorySession,
    PendingQuestion,
    RunnerContractError,
    TurnFailed,
    TurnPlan,
    answer_with,
    approve,
    approve_everything,
    check_runner,
    deny,
)
from dex_agents.tools import (
    DEFAULT_POLICY,
    Answer,
    Asks,
    Denied,
    Failed,
    OutcomeUnknown,
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


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


ToolFunction = Callable[[CallToolRequest], Awaitable[ToolOutcome]]
Script = Mapping[str, list[str | tuple[ToolRequest, ...] | tuple[Question, ...]]]


class HandWrittenRunner:
    """Answers a user message with the script of its text: texts end the turn, calls and questions are waited for."""

    def __init__(
        self,
        script: Script,
        tools: Mapping[str, ToolFunction] | None = None,
        *,
        prepend_lines: bool = False,
        change_request: bool = False,
        forget_open_calls: bool = False,
    ) -> None:
        self.script = script
        self.tools = tools or {}
        self.prepend_lines = prepend_lines
        self.change_request = change_request
        self.forget_open_calls = forget_open_calls

    def describe(self) -> Description:
        return Description(
            framework="hand-written",
            framework_version="1",
            reads_formats=(1,),
            supports_steering=True,
            supports_compaction=False,
        )

    async def run_model(self, request: RunModelRequest) -> ModelStep:
        lines = read_lines(request.state)
        if isinstance(request.input, NewTurn):
            if lines and lines[-1].startswith("open "):
                raise TurnFailedError("the history has an open batch: close_turn was not called or did nothing")
            note = f" {request.input.note}" if request.input.note else ""
            lines.append(f"user {''.join(block.text for block in request.input.content if block.kind == 'text')}{note}")
        elif isinstance(request.input, BatchSettled):
            lines.remove(next(line for line in lines if line.startswith("open ")))
            lines += [result_line(call) for call in request.input.calls]
            lines += [f"answer {answer.value}" for answer in request.input.answers]
        lines += [f"user {message.text}" for message in request.steering]
        if self.change_request and request.state is not None:
            cast("list[JsonValue]", request.state.value).append("changed")
        turn = max(index for index, line in enumerate(lines) if line.startswith("user ") and self._script_of(line))
        said = self._script_of(lines[turn])[sum(line.startswith("agent ") for line in lines[turn:])]
        return self._say(lines, said, steering=len(request.steering))

    def _script_of(self, line: str) -> list[str | tuple[ToolRequest, ...] | tuple[Question, ...]]:
        return self.script.get(line.removeprefix("user ").split(" [")[0], [])

    def _say(
        self, lines: list[str], said: str | tuple[ToolRequest, ...] | tuple[Question, ...], *, steering: int
    ) -> ModelStep:
        outcome: ModelOutcome
        blocks: tuple[TextBlock | CallBlock, ...] = ()
        if isinstance(said, str):
            results = [line.removeprefix("result ") for line in lines if line.startswith("result ")]
            text = said.replace("{results}", ", ".join(results)).replace("{last}", lines[-1])
            lines.append(f"agent {text}")
            blocks = (TextBlock(text=text),)
            outcome = Again(reason="it must be polished") if said.startswith("draft") else Finished(text=text)
        else:
            calls = tuple(item for item in said if isinstance(item, ToolRequest))
            lines.append(f"agent asks {len(said)}")
            lines.append("open " + " ".join(call.call_id for call in calls))
            blocks = tuple(CallBlock(call_id=call.call_id, name=call.name, arguments=call.arguments) for call in calls)
            questions = tuple(item for item in said if isinstance(item, Question))
            outcome = Waiting(calls=calls, questions=questions)
        if self.prepend_lines:
            lines.insert(0, f"line {len(lines)}")
        return ModelStep(
            outcome=outcome,
            state=write_lines(lines),
            messages=(Message(role="assistant", blocks=blocks),),
            usage=Usage(requests=1),
            steering_taken=steering,
        )

    async def call_tool(self, request: CallToolRequest) -> ToolOutcome:
        return await self.tools[request.call.name](request)

    async def close_turn(self, request: CloseTurnRequest) -> Closed:
        lines = read_lines(request.state)
        if not self.forget_open_calls:
            lines = [line for line in lines if not line.startswith("open ")]
            lines += [result_line(call) for call in request.calls]
        return Closed(state=write_lines(lines))

    async def compact(self, request: CompactRequest) -> CannotCompactNow:
        return CannotCompactNow(reason="this runner never compacts")


def read_lines(state: FrameworkState | None) -> list[str]:
    return [] if state is None else [str(line) for line in cast("list[JsonValue]", state.value)]


def write_lines(lines: list[str]) -> FrameworkState:
    return FrameworkState(framework="hand-written", framework_version="1", format=1, value=[*lines])


def result_line(call: SettledCall) -> str:
    settlement = call.settlement
    text = settlement.text if isinstance(settlement, Returned) else settlement.message
    return f"result {call.call.call_id}={text}"


def call(
    call_id: str, name: str, *, policy: ToolPolicy = DEFAULT_POLICY, after: tuple[int, ...] = (), **arguments: JsonValue
) -> ToolRequest:
    return ToolRequest(call_id=call_id, name=name, arguments=arguments, policy=policy, after=after)


READ = ToolPolicy(effect=ToolEffect.READ)
IDEMPOTENT = ToolPolicy(effect=ToolEffect.IDEMPOTENT_WRITE)


async def echo(request: CallToolRequest) -> ToolOutcome:
    arguments = request.call.arguments if request.arguments is None else request.arguments
    return Returned(record=None, text=f"{request.call.name} {arguments}")


def answer_of(result: Finished | TurnFailed) -> str:
    assert isinstance(result, Finished), result
    return result.text


async def test_three_parallel_calls_take_the_steps_of_the_contract() -> None:
    script: Script = {"go": [tuple(call(f"c{i}", "echo", policy=READ, i=i) for i in range(3)), "done {results}"]}
    session = InMemorySession(lambda: HandWrittenRunner(script, {"echo": echo}))
    text = answer_of(await session.send("go"))
    assert text == "done c0=echo {'i': 0}, c1=echo {'i': 1}, c2=echo {'i': 2}"
    assert session.steps == ["RunModel", "CallTool", "CallTool", "CallTool", "ResumeTurn", "RunModel"]
    assert [recorded.idempotency_key for recorded in session.calls] == [
        f"session-1/turn-1/call-{number}" for number in (1, 2, 3)
    ]
    assert session.usage.requests == 2
    assert [message.role for message in session.messages] == ["user", "assistant", "tool", "tool", "tool", "assistant"]


async def test_calls_of_a_batch_run_in_parallel_unless_after_says_otherwise() -> None:
    running: list[str] = []
    both = asyncio.Event()

    async def meet(request: CallToolRequest) -> ToolOutcome:
        running.append(request.call.call_id)
        if len(running) == 2:
            both.set()
        await asyncio.wait_for(both.wait(), 5)
        return Returned(record=None, text="met")

    async def last(request: CallToolRequest) -> ToolOutcome:
        assert [settled.call.call_id for settled in request.earlier] == ["a", "b"]
        return Returned(record=None, text="last")

    script: Script = {"go": [(call("a", "meet"), call("b", "meet"), call("c", "last", after=(0, 1))), "{results}"]}
    session = InMemorySession(lambda: HandWrittenRunner(script, {"meet": meet, "last": last}))
    assert answer_of(await session.send("go")) == "a=met, b=met, c=last"


async def test_the_tool_finds_its_key_and_attempt_and_a_read_is_tried_three_times() -> None:
    seen: list[tuple[str, int]] = []

    async def flaky(request: CallToolRequest) -> ToolOutcome:
        info = current_tool_call()
        assert info is not None
        seen.append((info.idempotency_key, info.attempt))
        raise ConnectionError("no line")

    script: Script = {"go": [(call("a", "flaky", policy=READ),), "{results}"]}
    session = InMemorySession(lambda: HandWrittenRunner(script, {"flaky": flaky}))
    assert answer_of(await session.send("go")) == "a=the tool failed: ConnectionError: no line"
    assert seen == [("session-1/turn-1/call-1", attempt) for attempt in (1, 2, 3)]
    assert current_tool_call() is None


@pytest.mark.parametrize(
    ("policy", "error", "attempts", "settlement"),
    [
        (READ, ConnectionError("x"), 3, Failed),
        (IDEMPOTENT, ConnectionError("x"), 3, OutcomeUnknown),
        (ToolPolicy(effect=ToolEffect.NON_IDEMPOTENT_WRITE), ConnectionError("x"), 1, OutcomeUnknown),
        (DEFAULT_POLICY, ConnectionError("x"), 1, OutcomeUnknown),
        (DEFAULT_POLICY, ToolDidNotHappen("refused"), 1, Failed),
        (IDEMPOTENT, ToolDidNotHappen("refused"), 1, Failed),
    ],
)
async def test_a_raising_tool_is_settled_by_its_effect(
    policy: ToolPolicy, error: Exception, attempts: int, settlement: type[Failed] | type[OutcomeUnknown]
) -> None:
    async def broken(request: CallToolRequest) -> ToolOutcome:
        raise error

    script: Script = {"go": [(call("a", "broken", policy=policy),), "{results}"]}
    session = InMemorySession(lambda: HandWrittenRunner(script, {"broken": broken}))
    answer_of(await session.send("go"))
    assert isinstance(session.calls[0].settlement, settlement)
    assert session.calls[0].attempts == attempts


async def test_an_approval_can_be_given_with_other_arguments_or_refused() -> None:
    policy = ToolPolicy(approval=True)
    script: Script = {"go": [(call("a", "echo", policy=policy, n=1), call("b", "echo", policy=policy)), "{results}"]}

    async def decide(pending: PendingQuestion) -> Answer:
        assert pending.call is not None
        return approve({"n": 5}) if pending.call.call_id == "a" else deny("too late")

    session = InMemorySession(lambda: HandWrittenRunner(script, {"echo": echo}), decide=decide)
    assert answer_of(await session.send("go")) == "a=echo {'n': 5}, b=too late"
    assert isinstance(session.calls[1].settlement, Denied)
    assert session.calls[1].attempts == 0


async def test_a_tool_that_asks_is_run_again_with_the_answers_and_its_resume() -> None:
    async def curious(request: CallToolRequest) -> ToolOutcome:
        if not request.answers:
            return Asks(questions=(Question(id="color", kind="answer", prompt="Which?"),), resume={"round": 1})
        return Returned(record=None, text=f"{request.answers[0].value} {request.resume} {request.idempotency_key}")

    script: Script = {"go": [(call("a", "curious"),), "{results}"]}
    session = InMemorySession(
        lambda: HandWrittenRunner(script, {"curious": curious}), decide=lambda pending: answer_with("red")
    )
    assert answer_of(await session.send("go")) == "a=red {'round': 1} session-1/turn-1/call-1"
    assert "AwaitAnswer" in session.steps


async def test_a_question_without_a_decide_fails_the_test() -> None:
    script: Script = {"go": [(call("a", "echo", policy=ToolPolicy(approval=True)),), "{results}"]}
    session = InMemorySession(lambda: HandWrittenRunner(script, {"echo": echo}))
    with pytest.raises(AssertionError, match="the session has no `decide`"):
        await session.send("go")


async def test_the_agents_own_question_is_answered_together_with_the_batch() -> None:
    script: Script = {"go": [(Question(id="q", kind="answer", prompt="Why?"),), "{last}"]}
    session = InMemorySession(lambda: HandWrittenRunner(script), decide=lambda pending: answer_with("because"))
    assert answer_of(await session.send("go")) == "answer because"


async def test_a_question_that_was_answered_is_open_no_more_when_the_turn_fails_behind_it() -> None:
    open_questions: list[str] = []

    class Watched(HandWrittenRunner):
        async def close_turn(self, request: CloseTurnRequest) -> Closed:
            open_questions.extend(question.id for question in request.questions)
            return await super().close_turn(request)

    script: Script = {"go": [(Question(id="q", kind="answer", prompt="Why?"),), "{last}"]}
    session = InMemorySession(lambda: Watched(script), decide=lambda pending: answer_with("because"))
    await session.send("go", TurnPlan(fail_model_step=2))
    await session.send("go", TurnPlan(cancel_after_calls=0))
    assert open_questions == ["q"]


async def test_a_tool_that_comes_back_later_spends_no_attempt() -> None:
    visits: list[int] = []

    async def slow(request: CallToolRequest) -> ToolOutcome:
        visits.append(request.step.attempt)
        return RetryLater(after_seconds=1, reason="busy") if len(visits) < 3 else Returned(record=None, text="ready")

    script: Script = {"go": [(call("a", "slow"),), "{results}"]}
    session = InMemorySession(lambda: HandWrittenRunner(script, {"slow": slow}))
    assert answer_of(await session.send("go")) == "a=ready"
    assert visits == [1, 1, 1]


async def test_a_lost_call_is_not_run_and_its_outcome_is_unknown() -> None:
    script: Script = {"go": [(call("a", "echo"),), "{results}"]}
    session = InMemorySession(lambda: HandWrittenRunner(script, {"echo": echo}))
    text = answer_of(await session.send("go", TurnPlan(lost_tools=frozenset({"echo"}))))
    assert text == "a=the outcome of this call is unknown: it may have happened"
    assert session.calls[0].attempts == 0


async def test_a_cancelled_turn_is_closed_and_the_next_one_is_told() -> None:
    script: Script = {"go": [(call("a", "echo"), call("b", "echo")), "{results}"], "on": ["after {last}"]}
    session = InMemorySession(lambda: HandWrittenRunner(script, {"echo": echo}))
    ended = await session.send("go", TurnPlan(cancel_after_calls=1))
    assert isinstance(ended, TurnFailed)
    assert ended.error is None
    assert "echo (returned)" in ended.note
    assert answer_of(await session.send("on")) == f"after user on {ended.note}"
    assert session.state is not None
    assert "result b=not run: the turn was cancelled" in cast("list[str]", session.state.value)


async def test_a_model_call_is_tried_three_times_and_a_turn_failure_once() -> None:
    attempts: list[int] = []

    class Unreachable(HandWrittenRunner):
        async def run_model(self, request: RunModelRequest) -> ModelStep:
            attempts.append(request.step.attempt)
            raise TurnFailedError("over the limit") if len(attempts) > 3 else ConnectionError("provider is down")

    session = InMemorySession(lambda: Unreachable({}))
    ended = await session.send("go")
    assert isinstance(ended, TurnFailed)
    assert isinstance(ended.error, ConnectionError)
    assert attempts == [1, 2, 3]
    assert isinstance(await session.send("go"), TurnFailed)
    assert attempts == [1, 2, 3, 1]


async def test_again_continues_without_tools_and_steering_is_offered_until_it_is_taken() -> None:
    script: Script = {"go": ["draft", "final {last}"]}
    session = InMemorySession(lambda: HandWrittenRunner(script))
    text = answer_of(await session.send("go", TurnPlan(steering={2: "shorter"})))
    assert text == "final user shorter"
    assert session.steps == ["RunModel", "RunModel"]
    assert session.steering_queue == []
    assert [message.text for message in session.messages] == ["go", "draft", "shorter", "final user shorter"]


async def test_the_conformance_check_runs_disturbed_conversations_too() -> None:
    script: Script = {"go": [(call("a", "echo", policy=READ),), "done"], "on": ["bye"]}
    report = await check_runner(lambda: HandWrittenRunner(script, {"echo": echo}), ["go", "on"])
    assert report.answers == ("done", "bye")
    assert report.conversations == 8
    assert report.cancelled == 2


async def test_a_runner_that_closes_no_turn_is_found_out() -> None:
    script: Script = {"go": [(call("a", "echo", policy=READ),), "done"]}
    with pytest.raises(RunnerContractError, match="close_turn was not called or did nothing"):
        await check_runner(lambda: HandWrittenRunner(script, {"echo": echo}, forget_open_calls=True), ["go"])


async def test_a_runner_that_changes_its_request_is_found_out() -> None:
    session = InMemorySession(lambda: HandWrittenRunner({"go": ["a"], "on": ["b"]}, change_request=True))
    await session.send("go")
    with pytest.raises(RunnerContractError, match="run_model changed its request"):
        await session.send("on")


async def test_a_runner_that_puts_new_elements_first_is_found_out() -> None:
    session = InMemorySession(lambda: HandWrittenRunner({"go": ["a"], "on": ["b"]}, prepend_lines=True))
    await session.send("go")
    with pytest.raises(RunnerContractError, match="new ones go to the end"):
        await session.send("on")


@pytest.mark.parametrize(
    ("calls", "message"),
    [
        ((call("a", "echo"), call("a", "echo")), "two calls of one batch"),
        ((call("a", "echo", after=(0,)),), "name calls that come earlier"),
        ((ToolRequest(call_id="a", name="echo", arguments=[1]),), "give a JSON object"),
        ((), "neither a call nor a question"),
    ],
)
async def test_a_batch_that_no_session_could_run_is_found_out(calls: tuple[ToolRequest, ...], message: str) -> None:
    session = InMemorySession(lambda: HandWrittenRunner({"go": [calls, "done"]}, {"echo": echo}))
    with pytest.raises(RunnerContractError, match=message):
        await session.send("go")


async def test_approve_everything_refuses_a_question_that_is_no_approval() -> None:
    script: Script = {"go": [(Question(id="q", kind="answer", prompt="Why?"),), "{last}"]}
    session = InMemorySession(lambda: HandWrittenRunner(script), decide=approve_everything)
    with pytest.raises(AssertionError, match="give a `decide`"):
        await session.send("go")
