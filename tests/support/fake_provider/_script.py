"""Which reply answers which request."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from support.fake_provider._recording import RecordedRequest
from support.fake_provider._replies import ConnectionCut, FileGate, HttpError, Reply, ToolCall, Usage

ChooseBy = Literal["order", "turn"]
Replies: TypeAlias = "Sequence[Reply | Sequence[Reply]] | Callable[[RecordedRequest], Reply]"


class ScriptExhaustedError(Exception):
    """The script has no reply for a request: the agent made a call that the test did not expect."""


class Script:
    """Answers requests from a list or a function.

    Args:
        replies: Replies in order, or a function of the recorded request. With `choose_by="turn"` an element may be a
            list: the replies to the first, second, ... request of that turn; the last one answers all later ones.
        choose_by: `order`: each request uses up one reply. `turn`: the reply's index is the number of the model's
            answers in the request's history, so that a repeated call gets the same reply, after a crash too.

    Attributes:
        replies: The function, or the attempts of each reply.
    """

    def __init__(self, replies: Replies, choose_by: ChooseBy = "order") -> None:
        if choose_by not in get_args(ChooseBy):
            raise ValueError(f"choose_by is one of {', '.join(get_args(ChooseBy))}, not {choose_by!r}")
        self.replies = replies if callable(replies) else [_attempts(reply) for reply in replies]
        self._choose_by = choose_by
        if choose_by == "order" and not callable(self.replies) and any(len(each) != 1 for each in self.replies):
            raise ValueError("a list of attempts needs choose_by='turn'; in order, write the replies one after another")
        self._calls: Counter[int] = Counter()
        self._answered = 0

    def reply_to(self, request: RecordedRequest) -> Reply:
        """Return the reply to a request.

        Raises:
            ScriptExhaustedError: If there is none.
        """
        if callable(self.replies):
            return self.replies(request)
        index = self._answered if self._choose_by == "order" else request.turn
        if index >= len(self.replies):
            raise ScriptExhaustedError(
                f"the script has {len(self.replies)} replies, chosen by {self._choose_by}; request"
                f" {request.number} ({request.path}) asks for reply {index}"
            )
        self._answered += 1
        attempts = self.replies[index]
        attempt = min(self._calls[index], len(attempts) - 1)
        self._calls[index] += 1
        return attempts[attempt]


def _attempts(reply: Reply | Sequence[Reply]) -> Sequence[Reply]:
    attempts = [reply] if isinstance(reply, Reply) else list(reply)
    if not attempts:
        raise ValueError("a list of attempts needs at least one reply")
    return attempts


def load_script(path: Path) -> Script:
    """Read a script from a JSON file.

    The file holds `{"choose_by": "turn", "replies": [...]}`. A reply has the fields of `Reply`; `tool_calls` are
    objects with the fields of `ToolCall`; `failure` is `{"status": ...}` or `{"after_chunks": ...}`; `gate` is the
    path of the file that opens it, relative to the script. A list of replies holds the attempts of one turn.
    """
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    unknown = document.keys() - {"choose_by", "replies"}
    if unknown:
        raise ValueError(f"{path}: unknown fields {sorted(unknown)}; a script has choose_by and replies")
    # Any: the shape of a reply is checked where its fields become arguments.
    elements: list[dict[str, Any] | list[dict[str, Any]]] = document["replies"]
    replies = [
        _reply(element, path) if isinstance(element, dict) else [_reply(each, path) for each in element]
        for element in elements
    ]
    return Script(replies, document.get("choose_by", "turn"))


def dump_script(replies: Sequence[Reply | Sequence[Reply]], choose_by: ChooseBy = "turn") -> str:
    """Write a script as the JSON text that `load_script` reads; the gates must be files."""
    elements = [
        _document(element) if isinstance(element, Reply) else [_document(each) for each in element]
        for element in replies
    ]
    return json.dumps({"choose_by": choose_by, "replies": elements}, indent=2)


def _reply(document: Mapping[str, Any], script: Path) -> Reply:
    fields = dict(document)
    if "tool_calls" in fields:
        fields["tool_calls"] = tuple(ToolCall(**call) for call in fields["tool_calls"])
    if "usage" in fields:
        fields["usage"] = Usage(**fields["usage"])
    if "failure" in fields:
        failure = fields["failure"]
        fields["failure"] = HttpError(**failure) if "status" in failure else ConnectionCut(**failure)
    if "gate" in fields:
        fields["gate"] = FileGate(script.parent / fields["gate"])
    return Reply(**fields)


def _document(reply: Reply) -> dict[str, Any]:
    document: dict[str, Any] = {
        "text": reply.text,
        "reasoning": reply.reasoning,
        "tool_calls": [{"name": call.name, "arguments": call.arguments, "id": call.id} for call in reply.tool_calls],
        "finish_reason": reply.finish_reason,
        "usage": vars(reply.usage),
        "chunk_characters": reply.chunk_characters,
        "chunk_delay_seconds": reply.chunk_delay_seconds,
        "gate_after_chunks": reply.gate_after_chunks,
    }
    if reply.failure is not None:
        document["failure"] = vars(reply.failure)
    if reply.gate is not None:
        if not isinstance(reply.gate, FileGate):
            raise ValueError("a reply in another process can wait at a FileGate only")
        document["gate"] = str(reply.gate.path.absolute())
    return document
