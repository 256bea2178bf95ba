"""The scripted agent with turns that say very much, for sessions that are larger than any message of the protocol.

`say told 200 2600 7` saves 200 messages of 2,600 characters each, and its state has 1.3 MB beside what was said.
"""

import base64
import random

from dex_agents import AgentSessionFlow
from dex_agents.messages import text_message
from dex_agents.runner import Finished, ModelStep, RunModelRequest
from support.scripted_runner import ScriptedRunner

_STATE_BYTES = 950_000
"""Before base64; little is left of what a session's state may have."""


class TalkativeRunner(ScriptedRunner):
    """Says as much as the script wants, and remembers a large value that hardly compresses."""

    def __init__(self) -> None:
        super().__init__()
        self._remembered = noise(0, _STATE_BYTES)

    async def run_model(self, request: RunModelRequest) -> ModelStep:
        """Run the next line of the script."""
        step = await super().run_model(request)
        assert isinstance(step.state.value, dict)
        state = step.state.model_copy(update={"value": {**step.state.value, "remembered": self._remembered}})
        step = step.model_copy(update={"state": state})
        if not isinstance(step.outcome, Finished) or not step.outcome.text.startswith("told "):
            return step
        count, size, seed = map(int, step.outcome.text.split()[1:])
        messages = tuple(text_message("assistant", told(seed, number, size)) for number in range(count))
        return step.model_copy(update={"messages": messages})


def noise(seed: int, size: int) -> str:
    """Return a text that hardly compresses, of so many bytes before base64."""
    return base64.b64encode(random.Random(seed).randbytes(size)).decode("ascii")


def told(seed: int, number: int, size: int) -> str:
    """Return what the agent says as the message of that number: hexadecimal, which shrinks to half or so, as prose."""
    return f"{seed}.{number} {random.Random(1000 * seed + number).randbytes(size // 2).hex()}"[:size]


def talkative_flow() -> AgentSessionFlow:
    """Build the agent's Flow, the same in every process."""
    return AgentSessionFlow(TalkativeRunner(), name="talkative")
