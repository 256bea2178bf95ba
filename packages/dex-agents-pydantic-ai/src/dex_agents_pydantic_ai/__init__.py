"""Pydantic AI agents as durable sessions on Dex."""

from dex_agents_pydantic_ai._runner import PydanticAIRunner
from dex_agents_pydantic_ai._runs import DepsFactory

__all__ = ["DepsFactory", "PydanticAIRunner"]
