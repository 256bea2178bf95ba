"""Interrupts of a graph as the session's questions, and people's answers as what the graph is resumed with."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from langgraph.types import Interrupt
from pydantic import JsonValue

from dex_agents.tools import Answer, Question
from dex_agents_langgraph._content import as_json, as_text
from dex_agents_langgraph._state import AskedInterrupt, ReviewedAction

_ALL_DECISIONS: Final = ("approve", "edit", "reject", "respond")
BREAKPOINT: Final = "breakpoint"


class UnansweredError(Exception):
    """Nobody answered a question in time, or a person did not let the agent go on."""


def to_questions(interrupts: Iterable[Interrupt]) -> tuple[tuple[Question, ...], tuple[AskedInterrupt, ...]]:
    """Return the questions that interrupts become, and what is needed to answer the graph.

    A review by LangChain's `HumanInTheLoopMiddleware` becomes one approval for each reviewed call; every other
    interrupt becomes a question for a value.
    """
    questions: list[Question] = []
    asked: list[AskedInterrupt] = []
    for interrupt in interrupts:
        value: object = interrupt.value
        reviews = _reviews(interrupt)
        if reviews:
            is_one = _is_call_review(value)
            ids = [interrupt.id] if is_one else [f"{interrupt.id}/{number}" for number in range(len(reviews))]
            questions += [_review_question(each, *review) for each, review in zip(ids, reviews, strict=True)]
            form = "decision" if is_one else "decisions"
            actions = tuple(action for action, _ in reviews)
            asked.append(AskedInterrupt(interrupt_id=interrupt.id, question_ids=tuple(ids), form=form, actions=actions))
        else:
            questions.append(
                Question(
                    id=interrupt.id,
                    kind="answer",
                    prompt=as_text(value),
                    answer_schema=_response_schema(interrupt),
                    detail=as_json(value),
                )
            )
            asked.append(AskedInterrupt(interrupt_id=interrupt.id, question_ids=(interrupt.id,), form="value"))
    return tuple(questions), tuple(asked)


def breakpoint_question(nodes: Sequence[str]) -> tuple[Question, AskedInterrupt]:
    """Return the question that a static breakpoint of the graph becomes."""
    named = ", ".join(repr(node) for node in nodes)
    question = Question(
        id=BREAKPOINT,
        kind="approval",
        prompt=f"The agent stopped at a breakpoint; next is {named}. May it go on?",
        detail={"next": list(nodes)},
    )
    return question, AskedInterrupt(interrupt_id=BREAKPOINT, question_ids=(BREAKPOINT,), form=BREAKPOINT)


def to_resume(asked: Iterable[AskedInterrupt], answers: Iterable[Answer]) -> dict[str, Any]:
    """Return what a graph is resumed with, by interrupt.

    Raises:
        UnansweredError: A question has no answer, or a breakpoint was not released.
    """
    # A call may ask twice under one id; the newest answer is the one that is open.
    by_question = {answer.question_id: answer for answer in answers}
    resume: dict[str, Any] = {}
    for one in asked:
        given = [by_question[each] for each in one.question_ids if each in by_question]
        if len(given) < len(one.question_ids):
            raise UnansweredError(f"the interrupt {one.interrupt_id!r} of the graph has no answer")
        if one.form == BREAKPOINT:
            if not given[0].approved:
                raise UnansweredError(given[0].message or "a person stopped the agent at a breakpoint")
        elif one.form == "value":
            if given[0].approved is False:
                raise UnansweredError(given[0].message or "the question was not answered")
            resume[one.interrupt_id] = given[0].value
        else:
            decisions = [_decide(answer, action) for answer, action in zip(given, one.actions, strict=True)]
            resume[one.interrupt_id] = decisions[0] if one.form == "decision" else {"decisions": decisions}
    return resume


def _is_call_review(value: object) -> bool:
    return isinstance(value, dict) and cast("dict[str, object]", value).get("type") == "tool_approval"


def _reviews(interrupt: Interrupt) -> list[tuple[ReviewedAction, str]]:
    """Return what a person is asked to review, with its description; empty for an interrupt of another kind."""
    held: object = interrupt.value
    if not isinstance(held, dict):
        return []
    value = cast("dict[str, Any]", held)
    if _is_call_review(value) and isinstance(value.get("args"), dict):
        decisions = _decisions_of_schema(_response_schema(interrupt))
        action = ReviewedAction(name=value["name"], arguments=value["args"], decisions=decisions)
        return [(action, str(value.get("description", "")))]
    requests, configs = value.get("action_requests"), value.get("review_configs")
    if not isinstance(requests, list) or not isinstance(configs, list):
        return []
    allowed = {config["action_name"]: tuple(config["allowed_decisions"]) for config in cast("list[Any]", configs)}
    return [
        (
            ReviewedAction(
                name=request["name"],
                arguments=request["args"],
                decisions=allowed.get(request["name"], _ALL_DECISIONS),
            ),
            str(request.get("description", "")),
        )
        for request in cast("list[Any]", requests)
    ]


def _response_schema(interrupt: Interrupt) -> JsonValue:
    # Interrupts have told what they accept since LangGraph 1.2.
    schema: object = getattr(interrupt, "response_schema", None)
    return as_json(cast("object", schema)) if isinstance(schema, dict) else None


def _decisions_of_schema(schema: JsonValue) -> tuple[str, ...]:
    """Return the decisions that the schema of a review accepts: `type` is a constant in each of its branches."""
    found = [each for each in _ALL_DECISIONS if f"'const': '{each}'" in repr(schema)]
    return tuple(found) or _ALL_DECISIONS


def _review_question(question_id: str, action: ReviewedAction, description: str) -> Question:
    takes_yes = "approve" in action.decisions or "edit" in action.decisions
    detail: JsonValue = {
        "name": action.name,
        "arguments": as_json(action.arguments),
        "decisions": list(action.decisions),
    }
    return Question(
        id=question_id,
        # Where nobody can say yes, the person speaks for the tool.
        kind="approval" if takes_yes else "answer",
        prompt=description or f"May {action.name!r} be called?",
        detail=detail,
    )


def _decide(answer: Answer, action: ReviewedAction) -> Mapping[str, Any]:
    """Return an answer as a decision of LangChain's."""
    allowed = action.decisions
    if isinstance(answer.value, dict) and answer.value.get("type") in allowed:
        return answer.value
    if answer.value is not None and "respond" in allowed:
        return {"type": "respond", "message": as_text(answer.value)}
    if answer.approved:
        if answer.arguments is None and "approve" in allowed:
            return {"type": "approve"}
        arguments = action.arguments if answer.arguments is None else answer.arguments
        return {"type": "edit", "edited_action": {"name": action.name, "args": arguments}}
    if "reject" not in allowed and "respond" in allowed:
        return {"type": "respond", "message": answer.message or "denied"}
    return {"type": "reject", "message": answer.message} if answer.message else {"type": "reject"}
