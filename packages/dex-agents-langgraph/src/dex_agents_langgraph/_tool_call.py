"""One tool call alone, inside its real task of the graph."""

from typing import Any, cast

from langgraph.types import Command
from pydantic import JsonValue

from dex_agents.errors import ToolDidNotHappen
from dex_agents.runner import CallToolRequest, Usage
from dex_agents.tools import TOOL_CALL_NOT_RUN_ERROR_PREFIX, Asks, Failed, Question, ToolOutcome
from dex_agents_langgraph._events import UsageCounter
from dex_agents_langgraph._graphs import SingleCall, run_only, tool_nodes
from dex_agents_langgraph._model_step import key_of, load_saver, place_of
from dex_agents_langgraph._private import is_invalid_resume
from dex_agents_langgraph._questions import UnansweredError, to_questions, to_resume
from dex_agents_langgraph._runs import BuiltGraph, GraphRuns
from dex_agents_langgraph._saver import SnapshotSaver, load_writes
from dex_agents_langgraph._state import SessionState, ToolResume
from dex_agents_langgraph._tools import to_returned


async def run_one_call(
    runs: GraphRuns, built: BuiltGraph, state: SessionState, request: CallToolRequest
) -> ToolOutcome:
    """Run one call of the batch that the state waits for.

    Args:
        runs: Opens runs.
        built: The user's graph.
        state: As RunModel left it.
        request: The session's request.

    Raises:
        ToolDidNotHappen: The tool was not even reached.
        Exception: What the tool raised.
    """
    resume = None if request.resume is None else ToolResume.model_validate(request.resume)
    run_input: Any = None
    if resume is not None:
        try:
            run_input = Command(resume=to_resume(resume.asked, request.answers))
        except UnansweredError as error:
            return Failed(message=str(error))
    single = SingleCall(
        key=key_of(request.call),
        arguments=cast("dict[str, Any] | None", request.arguments),
    )
    path = place_of(request.call).path
    try:
        saver = load_saver(request.state, state.namespaces, built)
        if resume is not None:
            _restore(saver, resume)
        saver.read_late(built.late_channels)
        graph = run_only(built.graph, path, single)
        graph.checkpointer = saver
        usage = UsageCounter()
        await runs.run(
            graph,
            run_input,
            request.step,
            usage=usage,
            recursion_limit=built.recursion_limit,
            call_id=request.call.call_id,
        )
    except Exception as error:
        if resume is not None and is_invalid_resume(error):
            # The answer was checked before the tool got it: the same question is open again.
            return _ask_again(resume, request, error)
        # A tool that has asked before did run, and an effect that may be repeated is simply tried again.
        if single.reached or request.has_asked or request.call.policy.effect.is_repeatable:
            raise
        raise ToolDidNotHappen(f"{TOOL_CALL_NOT_RUN_ERROR_PREFIX}: {type(error).__name__}: {error}") from error
    spent = usage.usage if resume is None else resume.usage.plus(usage.usage)
    if single.result is not None:
        node = next(place.node for place in tool_nodes(built.graph) if place.path == path)
        return to_returned(single.result, request.call, node, built.codec, spent)
    if single.interrupts:
        return _ask(single, saver, state, spent)
    raise ToolDidNotHappen(
        f"{TOOL_CALL_NOT_RUN_ERROR_PREFIX}: the graph does not wait at {'/'.join(path)!r} for this call any more"
    )


def _ask(single: SingleCall, saver: SnapshotSaver, state: SessionState, spent: Usage) -> Asks:
    questions, asked = to_questions(single.interrupts)
    return Asks(
        questions=questions,
        resume=cast("JsonValue", _changes(saver, state, ToolResume(asked=asked, usage=spent)).model_dump(mode="json")),
    )


def _ask_again(resume: ToolResume, request: CallToolRequest, error: Exception) -> Asks:
    questions = tuple(
        Question(
            id=question_id,
            kind="approval" if one.form in ("decision", "decisions") else "answer",
            prompt=f"The answer was not accepted, please give another one: {error}",
            detail={"name": request.call.name},
        )
        for one in resume.asked
        for question_id in one.question_ids
    )
    return Asks(questions=questions, resume=request.resume)


def _changes(saver: SnapshotSaver, state: SessionState, resume: ToolResume) -> ToolResume:
    """Return what a pass has added to the state, which every Step of the batch has anyway."""
    known = {namespace: SnapshotSaver.ids(documents) for namespace, documents in state.namespaces.items()}
    writes: dict[str, dict[str, JsonValue]] = {}
    namespaces: dict[str, list[JsonValue]] = {}
    for namespace, checkpoints in saver.stored.items():
        if not set(checkpoints) <= known.get(namespace, set()):
            namespaces[namespace] = [checkpoints[each].dump() for each in sorted(checkpoints)]
        else:
            writes[namespace] = {one.id: one.dump_writes() for one in checkpoints.values()}
    return resume.model_copy(update={"namespaces": namespaces, "writes": writes})


def _restore(saver: SnapshotSaver, resume: ToolResume) -> None:
    saver.load(resume.namespaces)
    for namespace, by_checkpoint in resume.writes.items():
        for checkpoint_id, document in by_checkpoint.items():
            checkpoint = saver.stored.get(namespace, {}).get(checkpoint_id)
            if checkpoint is not None:
                checkpoint.writes = load_writes(document)
