"""The Dex Registry that knows session Flows and their documents."""

from typing import TYPE_CHECKING

from dex import Registry

from dex_agents._storage.schema import session_codecs
from dex_agents._storage.sealing import Sealing
from dex_agents.errors import ConfigurationError

if TYPE_CHECKING:
    from dex_agents.session_flow import AgentSessionFlow


def session_registry(*flows: "AgentSessionFlow") -> Registry:
    """Build the Registry of these session Flows, for a Worker or a Client of the Dex SDK.

    Args:
        flows: The Flows that this process serves or calls; their names must differ.

    Raises:
        dex.FlowDefinitionError: Two Flows have one name.
        ConfigurationError: The Flows differ in their `at_rest`: one Registry has one codec for all of them.
    """
    codecs = [flow.options.at_rest for flow in flows] or [None]
    if any(codec is not codecs[0] for codec in codecs):
        raise ConfigurationError(
            f"the agents {[flow.name for flow in flows]} differ in `at_rest`: give all of them the same object, or "
            "serve them by hosts of their own"
        )
    return Registry(list(flows), session_codecs(Sealing(codecs[0])), allow_async_handlers=True)
