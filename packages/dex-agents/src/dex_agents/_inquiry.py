"""What a running tool asks of its session, whatever its framework makes of the exception that ends the run."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from dex_agents.tools import Answer, Asks, Question, RetryLater

USER_QUESTION_PREFIX: Final = "ask_user:"
"""Of the ids of questions that tools ask by `ask_user`. Their answers go to the tool, never to the adapter."""


@dataclass
class Inquiry:
    """The questions and wishes of one run of a tool.

    A framework may turn the exception of a tool into a result, so the session looks here and not at what came back.

    Attributes:
        answers: What was answered before, by question id.
        asked: How often this run has asked so far; the n-th question of each run is the same one.
        wish: Why the run ended early; None while it did not.
    """

    answers: Mapping[str, Answer] = field(default_factory=dict[str, Answer])
    asked: int = 0
    wish: RetryLater | tuple[Question, ...] | None = None

    def question_id(self, chosen: str | None) -> str:
        """Return the id of the next question: the tool's own, or its number in this run."""
        self.asked += 1
        return f"{USER_QUESTION_PREFIX}{chosen or self.asked}"

    def outcome(self, resume: object = None) -> RetryLater | Asks | None:
        """Return what the session must do; None when the tool ended by itself.

        Args:
            resume: What the adapter gave with an earlier question of its own, to be kept.
        """
        if isinstance(self.wish, tuple):
            return Asks.model_validate({"questions": self.wish, "resume": resume})
        return self.wish


def is_user_question(question_id: str) -> bool:
    """Whether a tool asked this by `ask_user`."""
    return question_id.startswith(USER_QUESTION_PREFIX)
