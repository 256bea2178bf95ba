"""What people answered to questions of the agent itself, told in a turn that ends early behind the answers."""

import json
from collections.abc import Iterable, Sequence
from typing import Final

from pydantic import JsonValue

from dex_agents._storage.limits import clipped
from dex_agents.tools import Answer, Question

_MAX_PROMPT: Final = 500
_MAX_ANSWER: Final = 2000
_MAX_TOLD: Final = 8000


def told_answers(asked: Iterable[tuple[Question, Answer | None]]) -> tuple[str, ...]:
    """Tell each question that people answered, with its answer as JSON, both clipped."""
    return tuple(
        _told(question, answer) for question, answer in asked if answer is not None and not _is_deadline(answer)
    )


def newest_told(told: Sequence[str]) -> tuple[str, ...]:
    """Return the newest of them, oldest first, as many as may be kept and told together."""
    size, first = 0, len(told)
    while first > 0 and size + len(told[first - 1]) <= _MAX_TOLD:
        first -= 1
        size += len(told[first])
    return tuple(told[first:])


def _is_deadline(answer: Answer) -> bool:
    """Whether nobody answered in time: no person gives an error that is a denial."""
    return answer.is_error and answer.approved is False


def _told(question: Question, answer: Answer) -> str:
    given: dict[str, JsonValue] = answer.model_dump(
        mode="json", exclude_defaults=True, exclude={"question_id", "answered_by"}
    )
    shown = given if given.keys() - {"value"} else answer.value
    prompt = json.dumps(clipped(question.prompt, _MAX_PROMPT), ensure_ascii=False)
    return f"{prompt} -> {clipped(json.dumps(shown, ensure_ascii=False), _MAX_ANSWER)}"
