"""The Dex Registry that knows session Flows and their documents."""

from typing import TYPE_CHECKING

from dex import Registry

from dex_agents._storage.schema import session_codecs

if TYPE_CHECKING:
    from dex_agents.session_flow import AgentSessionFlow


def session_registry(*flows: "AgentSessionFlow") -> Registry:
    """Build the Registry of these session Flows, for a Worker or a Client of the Dex SDK.

    Args:
        flows: The Flows that this process serves or calls; their names must differ.

    Raises:
        dex.FlowDefinitionError: Two Flows have one name.
    """
    return Registry(list(flows), session_codecs(), allow_async_handlers=True)
