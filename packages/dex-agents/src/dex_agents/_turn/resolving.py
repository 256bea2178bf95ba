"""Gives a request what the agent's resolver makes of the turn's settings."""

from dataclasses import replace
from typing import TypeVar

from dex_agents._turn.services import SessionServices
from dex_agents.runner import CallToolRequest, CompactRequest, RunModelRequest
from dex_agents.settings import resolve_settings

RequestT = TypeVar("RequestT", RunModelRequest, CallToolRequest, CompactRequest)


async def with_settings(request: RequestT, services: SessionServices) -> RequestT:
    """Return the request with resolved settings; as it is where the agent has no resolver.

    Raises:
        Exception: What the resolver raised.
    """
    if services.settings_resolver is None:
        return request
    resolved = await resolve_settings(request.step, services.settings_resolver)
    return replace(request, step=replace(request.step, resolved=resolved))
