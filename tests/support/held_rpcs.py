"""A Worker that stays in an RPC, to be killed there, or while its engine is. Only test Workers build these Flows.

The first process that serves such an RPC makes the file in `HELD_MARKER` and stays there until the file beside it that
`release_of` names exists; every later call passes. Of uploads two are held, the second with `second_of` as the marker.
"""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from dex_agents import AgentSessionFlow, session_flow
from dex_agents._storage.attachment_documents import AttachmentPieces
from support.scripted_sessions import scripted_flow
from support.seeing_agent import seeing_flow


def held_flow() -> AgentSessionFlow:
    """Build the scripted agent with the RPC held whose code `HELD_RPC` names, a function of `session_flow`."""
    _hold(os.environ["HELD_RPC"], lambda *_: True, [Path(os.environ["HELD_MARKER"])])
    return scripted_flow()


def held_upload_flow() -> AgentSessionFlow:
    """Build the agent that looks at images with uploads held, each after its first call."""

    def is_in_the_middle(_: object, brought: AttachmentPieces, __: object) -> bool:
        return brought.first > 0

    marker = Path(os.environ["HELD_MARKER"])
    _hold("receive_pieces", is_in_the_middle, [marker, second_of(marker)])
    return seeing_flow()


def release_of(marker: Path) -> Path:
    """Return the file that lets a held call go on."""
    return marker.with_name(f"{marker.name}.release")


def second_of(marker: Path) -> Path:
    """Return the marker of the second upload."""
    return marker.with_suffix(".second")


def _hold(name: str, is_held: Callable[..., bool], markers: Sequence[Path]) -> None:
    code: Callable[..., Any] = getattr(session_flow, name)

    def held(*arguments: Any) -> Any:
        marker = _make_one(markers) if is_held(*arguments) else None
        while marker is not None and not release_of(marker).exists():
            time.sleep(0.02)
        return code(*arguments)

    setattr(session_flow, name, held)


def _make_one(markers: Sequence[Path]) -> Path | None:
    """Make the first file that is not there, and return it; another process may be about to make the same."""
    for marker in markers:
        with suppress(FileExistsError):
            marker.touch(exist_ok=False)
            return marker
    return None
