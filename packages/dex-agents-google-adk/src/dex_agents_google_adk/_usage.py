"""What model calls cost."""

from collections.abc import Sequence

from google.adk.agents.callback_context import CallbackContext
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.genai import types
from typing_extensions import override

from dex_agents.runner import Usage


def to_usage(metadata: Sequence[types.GenerateContentResponseUsageMetadata], requests: int) -> Usage:
    """Return what model calls cost.

    Args:
        metadata: What the provider told of each response.
        requests: How many calls there were.
    """
    return Usage(
        requests=requests,
        input_tokens=sum(one.prompt_token_count or 0 for one in metadata),
        output_tokens=sum((one.candidates_token_count or 0) + (one.thoughts_token_count or 0) for one in metadata),
    )


class UsageMeter(BasePlugin):
    """Counts the model calls of agents that run inside a tool.

    Attributes:
        usage: What they cost.
    """

    def __init__(self) -> None:
        super().__init__(name="dex_agents_usage")
        self.usage = Usage()

    @override
    async def after_model_callback(
        self, *, callback_context: CallbackContext, llm_response: LlmResponse
    ) -> LlmResponse | None:
        if not llm_response.partial:
            told = [] if llm_response.usage_metadata is None else [llm_response.usage_metadata]
            self.usage = self.usage.plus(to_usage(told, 1))
        return None
