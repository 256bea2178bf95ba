"""Runs one scenario in each way: plainly, in an in-memory session, and in a session on the embedded engine."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

from pydantic import JsonValue

from dex_agents import AgentHost, AgentSessionFlow
from dex_agents.errors import TurnFailedError
from dex_agents.messages import Block
from dex_agents.runner import Usage
from dex_agents.session import AgentSession
from dex_agents.snapshot import Interrupt
from dex_agents.testing import InMemorySession, PendingQuestion, TurnFailed
from dex_agents.tools import Answer, Question
from parity.column import Column, Ending, Run, Stage
from parity.scenario import ModelPath, Scenario
from support.fake_provider import FakeProvider

TURN_SECONDS = 20
"""Bound of one turn on the engine; most take under 0.1 s."""


async def run_plainly(column: Column, scenario: Scenario, path: ModelPath, provider: FakeProvider) -> Run:
    """Run the scenario without any session."""
    stage = _stage(column, scenario, path, provider)
    run = await column.run_plainly(stage)
    return _complete(column, stage, run)


@asynccontextmanager
async def open_session(
    column: Column, scenario: Scenario, path: ModelPath, provider: FakeProvider, *, compaction: int | None = None
) -> AsyncGenerator[InMemorySession]:
    """Open an in-memory session of the scenario's agent, whose turns the test runs itself.

    Args:
        column: The adapter's column.
        scenario: The scenario.
        path: How the model is reached.
        provider: The fake provider.
        compaction: The model's context window in tokens, for a session that compacts.
    """
    stage = _stage(column, scenario, path, provider)
    async with column.open_runner(stage) as make_runner:
        yield InMemorySession(make_runner, settings=scenario.settings, compaction=compaction)


async def run_in_memory(column: Column, scenario: Scenario, path: ModelPath, provider: FakeProvider) -> Run:
    """Run the scenario with a fresh runner in every Step, and with everything between Steps through JSON."""
    stage = _stage(column, scenario, path, provider)
    async with column.open_runner(stage) as make_runner:

        def decide(pending: PendingQuestion) -> Answer:
            call = pending.call
            name, arguments = ("", None) if call is None else (call.name, call.arguments)
            return _decision(column, scenario, pending.question, name, arguments)

        session = InMemorySession(make_runner, decide=decide, settings=scenario.settings)
        run = Run(requests=[])
        for turn in scenario.turns:
            ended = await session.send(turn)
            if isinstance(ended, TurnFailed):
                run.endings.append(Ending(error=str(ended.error)))
            else:
                run.endings.append(Ending(output=ended.text if ended.output is None else ended.output))
        run.usage = _usage(session.usage)
    return _complete(column, stage, run)


async def run_on_the_engine(
    column: Column, scenario: Scenario, path: ModelPath, provider: FakeProvider, directory: Path
) -> Run:
    """Run the scenario as a session on the embedded engine."""
    stage = _stage(column, scenario, path, provider)
    async with column.open_runner(stage) as make_runner:
        flow = AgentSessionFlow(make_runner(), name="parity")
        async with AgentHost(flow, directory=directory) as host:
            session = host.session("parity-1")
            await session.start(settings=scenario.settings)
            run = Run(requests=[])
            for turn in scenario.turns:
                run.endings.append(await _run_turn(column, session, scenario, turn))
            run.usage = _usage((await session.snapshot()).usage)
    return _complete(column, stage, run)


async def run_forked(
    column: Column, scenario: Scenario, path: ModelPath, provider: FakeProvider, directory: Path
) -> Run:
    """Run the scenario's turns as a session, fork it after its first turn, and run the others in the fork too."""
    stage = _stage(column, scenario, path, provider)
    async with column.open_runner(stage) as make_runner:
        flow = AgentSessionFlow(make_runner(), name="parity")
        async with AgentHost(flow, directory=directory) as host:
            session = host.session("parity-1")
            await session.start(settings=scenario.settings)
            run = Run(requests=[])
            for turn in scenario.turns:
                run.endings.append(await _run_turn(column, session, scenario, turn))
            fork = await session.fork("parity-2", from_sequence=1)
            for turn in scenario.turns[1:]:
                run.endings.append(await _run_turn(column, fork, scenario, turn))
    return _complete(column, stage, run)


def _stage(column: Column, scenario: Scenario, path: ModelPath, provider: FakeProvider) -> Stage:
    replies = column.script(scenario)
    provider.forget_requests()
    provider.script(replies)
    return Stage(scenario, path, provider, replies)


def _complete(column: Column, stage: Stage, run: Run) -> Run:
    run.executed = sorted(stage.toolbox.executed)
    run.requests = shown(column, stage)
    return run


def shown(column: Column, stage: Stage) -> list[JsonValue]:
    """Return what the model was shown on a stage so far, to be compared."""
    if stage.path == "scripted":
        return stage.shown
    return [
        {"path": request.path, "body": column.normalise(cast("JsonValue", request.body))}
        for request in stage.provider.requests
    ]


async def _run_turn(column: Column, session: AgentSession, scenario: Scenario, turn: str | Sequence[Block]) -> Ending:
    receipt = await session.send(turn)
    result = asyncio.create_task(session.wait_for_result(receipt.message_id, timeout=TURN_SECONDS))
    while scenario.decisions and not result.done():
        for interrupt in (await session.snapshot()).pending_interrupts:
            decided = _decision(column, scenario, interrupt.question, interrupt.tool_name, interrupt.arguments)
            await _answer(session, interrupt, decided)
        await asyncio.wait([result], timeout=0.01)
    try:
        ended = await result
    except TurnFailedError as error:
        return Ending(error=str(error))
    return Ending(output=ended.text if ended.output is None else ended.output)


def _decision(column: Column, scenario: Scenario, question: Question, tool: str, arguments: JsonValue) -> Answer:
    """Decide about a call, or about one that the agent itself asks about before it is one of the session's calls."""
    if not tool:
        detail = cast("dict[str, JsonValue]", question.detail)
        tool, arguments = str(detail["name"]), detail["arguments"]
    return scenario.decision(column.tool_name(tool), arguments)


async def _answer(session: AgentSession, interrupt: Interrupt, answer: Answer) -> None:
    interrupt_id = interrupt.interrupt_id
    match interrupt.question.kind:
        case "approval" if answer.approved:
            await session.approve(interrupt_id, arguments=answer.arguments)
        case "approval":
            await session.deny(interrupt_id, reason=answer.message)
        case "answer":
            await session.answer_question(interrupt_id, answer.value)
        case "external_result":
            await session.provide_tool_result(interrupt_id, answer.value, is_error=answer.is_error)


def _usage(usage: Usage) -> tuple[int, int, int]:
    return usage.requests, usage.input_tokens, usage.output_tokens
