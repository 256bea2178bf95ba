"""Requests of Claude Code without what differs from process to process, so that two of them can be compared."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

# Where the CLI keeps a copy of an image, in a directory of its own.
COPY: Final = re.compile(r"\[Image source: .*\]")
REMINDER: Final = re.compile(r"\n*<system-reminder>.*?</system-reminder>\n?", re.DOTALL)


def without_chance(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request without ids, prices, marks for caching, and the CLI's reminders."""
    kept = {key: value for key, value in body.items() if key != "metadata"}
    kept["messages"] = _messages(body["messages"])
    kept["system"] = [one for one in _without_marks(body["system"]) if "billing-header" not in one["text"]]
    kept["tools"] = _without_marks(body.get("tools", []))
    return kept


def flat_blocks(body: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return the conversation of a request as pairs of role and block."""
    return [(message["role"], block) for message in _messages(body["messages"]) for block in message["content"]]


def _messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Leave out marks for caching and reminders, and write neighbours of one role as one message."""
    kept: list[dict[str, Any]] = []
    for message in messages:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else _without_marks(content)
        blocks = [cleaned for block in blocks if (cleaned := _without_reminders(block)) is not None]
        if kept and kept[-1]["role"] == message["role"]:
            kept[-1]["content"] += blocks
        elif blocks:
            kept.append({"role": message["role"], "content": blocks})
    return kept


def _without_marks(blocks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in block.items() if key != "cache_control"} for block in blocks]


def _without_reminders(block: dict[str, Any]) -> dict[str, Any] | None:
    if block["type"] == "text":
        text = COPY.sub("[Image source: a copy]", REMINDER.sub("", block["text"]))
        return {**block, "text": text} if text else None
    if block["type"] == "tool_result":
        content = block["content"]
        if isinstance(content, str):
            return {**block, "content": REMINDER.sub("", content)}
        texts = [_without_reminders(one) for one in content]
        kept = [one for one in texts if one is not None]
        if len(kept) < len(texts) and kept and kept[-1]["type"] == "text":
            # The CLI ends the line before its reminder.
            kept[-1] = {**kept[-1], "text": kept[-1]["text"].removesuffix("\n")}
        return {**block, "content": kept}
    return block
