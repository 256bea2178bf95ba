"""A Worker that stays in its first RPC of a kind, to be killed there. Only test Workers build this Flow.

The first process that serves the RPC whose code is named in `HELD_RPC` (a function of `dex_agents.session_flow`) makes
the file in `HELD_MARKER` and stays there for good; every later call passes.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dex_agents import AgentSessionFlow, session_flow
from support.scripted_sessions import scripted_flow


def held_flow() -> AgentSessionFlow:
    """Build the scripted agent with the RPC held."""
    name = os.environ["HELD_RPC"]
    setattr(session_flow, name, _held(getattr(session_flow, name)))
    return scripted_flow()


def _held(code: Callable[..., Any]) -> Callable[..., Any]:
    def held(*arguments: Any) -> Any:
        try:
            Path(os.environ["HELD_MARKER"]).touch(exist_ok=False)
        except FileExistsError:
            return code(*arguments)
        while True:
            time.sleep(60)

    return held
