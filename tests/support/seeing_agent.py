"""A scripted agent that looks at images, for tests of large messages.

Its state keeps each image as a framework may have it: `standard` base64, base64 for URLs (`url`), or a `data-url`.
Where it looks at what it has, it notes a digest of each image: `saw` in the log of runs.
"""

import base64
import hashlib
import os
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, cast

from pydantic import JsonValue

from dex_agents import AgentSessionFlow, AgentSessionOptions
from dex_agents.messages import MediaBlock
from dex_agents.runner import (
    CallToolRequest,
    Closed,
    CloseTurnRequest,
    Compacted,
    CompactOutcome,
    CompactRequest,
    FrameworkState,
    ModelStep,
    NewTurn,
    RunModelRequest,
)
from dex_agents.tools import ToolOutcome
from support.scripted_runner import ScriptedRunner, note_run, read_runs

MIB: Final = 1024 * 1024

_DATA_URL: Final = "data:image/png;base64,"

FORMS: Final[Mapping[str, Callable[[bytes], str]]] = {
    "standard": lambda content: base64.b64encode(content).decode(),
    "url": lambda content: base64.urlsafe_b64encode(content).decode(),
    "data-url": lambda content: _DATA_URL + base64.b64encode(content).decode(),
}


def image(size: int, seed: int = 1) -> bytes:
    """Return bytes that do not compress, like an image's."""
    return random.Random(seed).randbytes(size)


def media(content: bytes) -> MediaBlock:
    """Return a block with an image inline."""
    return MediaBlock(media_type="image/png", data_base64=base64.b64encode(content).decode())


def digest(content: bytes) -> str:
    """Return how the agent calls an image in its log."""
    return hashlib.sha256(content).hexdigest()[:12]


def sights(log: Path, where: str = "") -> list[list[str]]:
    """Return the digests of all images that the agent saw, each time it looked, perhaps in one method only."""
    runs = [run for run in read_runs(log) if run["kind"] == "saw" and where in ("", run["where"])]
    return [str(run["images"]).split() for run in runs]


class SeeingRunner(ScriptedRunner):
    """Runs the script of a message, and keeps the message's images.

    Args:
        form: How it keeps them.
        shares: It takes kept objects.
        compacts: As for the scripted runner; a compaction drops all images.
    """

    def __init__(self, form: str = "standard", *, shares: bool = True, compacts: bool = False) -> None:
        super().__init__(compacts=compacts)
        self._form = form
        self.takes_kept_objects = shares

    async def run_model(self, request: RunModelRequest) -> ModelStep:
        """Look at the images of the message, and at those of before."""
        images = _images(request.state)
        if isinstance(request.input, NewTurn):
            blocks = [block for block in request.input.content if isinstance(block, MediaBlock)]
            assert all(block.attachment is None for block in blocks)
            contents = [base64.b64decode(block.data_base64 or "") for block in blocks if block.data_base64]
            shown: list[JsonValue] = [{"kind": "image", "data": FORMS[self._form](content)} for content in contents]
            images = images + shown
        _look("run_model", images)
        step = await super().run_model(request)
        return step.model_copy(update={"state": _with(step.state, images)})

    async def call_tool(self, request: CallToolRequest) -> ToolOutcome:
        """Look at the images, then run the tool."""
        _look("call_tool", _images(request.state))
        return await super().call_tool(request)

    async def close_turn(self, request: CloseTurnRequest) -> Closed:
        """Keep the images."""
        images = _images(request.state)
        _look("close_turn", images)
        closed = await super().close_turn(request)
        return closed if closed.state is None else closed.model_copy(update={"state": _with(closed.state, images)})

    async def compact(self, request: CompactRequest) -> CompactOutcome:
        """Drop the images."""
        _look("compact", _images(request.state))
        outcome = await super().compact(request)
        if not isinstance(outcome, Compacted):
            return outcome
        return outcome.model_copy(update={"state": _with(outcome.state, [])})


def seeing_flow(
    form: str = "standard", *, shares: bool = True, options: AgentSessionOptions | None = None
) -> AgentSessionFlow:
    """Build the agent's Flow, the same in every process."""
    options = options or AgentSessionOptions()
    runner = SeeingRunner(form, shares=shares, compacts=options.compaction is not None)
    return AgentSessionFlow(runner, name="seeing", options=options)


def _images(state: FrameworkState | None) -> list[JsonValue]:
    value = cast("dict[str, JsonValue]", state.value) if state else {}
    return cast("list[JsonValue]", value.get("images", []))


def _with(state: FrameworkState, images: list[JsonValue]) -> FrameworkState:
    value = cast("dict[str, JsonValue]", state.value)
    return state.model_copy(update={"value": {**value, "images": images}})


def _look(where: str, images: list[JsonValue]) -> None:
    data = [str(cast("dict[str, JsonValue]", each)["data"]).removeprefix(_DATA_URL) for each in images]
    contents = [base64.b64decode(text.replace("-", "+").replace("_", "/")) for text in data]
    note_run("saw", where=where, images=" ".join(map(digest, contents)), worker=os.getpid())
