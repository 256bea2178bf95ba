"""Finds names in `tools` and `reconcilers` that fit no tool: a misspelt one would drop an approval silently."""

import logging
from collections.abc import Collection, Iterable
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dex_agents.session_flow import AgentSessionFlow

_LOG = logging.getLogger(__name__)


def warn_of_unknown_names(flow: "AgentSessionFlow") -> None:
    """Log one warning for each policy and each reconciler that fits no tool which is known before a run.

    Nothing is said of an agent of which no tool is known before a run.
    """
    try:
        description = flow.runner.describe()
    except Exception as error:  # noqa: BLE001  whatever the application's own code raises
        # A graph that a function builds may need settings, which only a session has: it can be served all the same.
        _LOG.warning(
            "names of tools of agent %r are not checked, because its runner cannot list its tools before a run: %s: %s",
            flow.name,
            type(error).__name__,
            error,
        )
        return
    known = sorted({tool.name for tool in description.tools})
    if not known:
        return
    for name in find_unknown(description.policy_names, known):
        _warn(flow.name, "policy", name, known, "a tool whose name is misspelt here runs unasked and unclassified")
    for name in find_unknown(flow.reconcilers, known):
        _warn(flow.name, "reconciler", name, known, "no one is asked about a tool whose name is misspelt here")


def find_unknown(names: Iterable[str], known: Collection[str]) -> list[str]:
    """Return the names that fit none of the known tools.

    Args:
        names: As the application wrote them. A tool of an MCP server (`mcp__shop__refund`) may be named by its own
            name (`refund`), or by both.
        known: Names of tools; `mcp__shop__*` stands for all tools of a server.
    """
    given = list(dict.fromkeys(names))
    own_names = {_own_name(tool) for tool in known}
    return [
        name
        for name in given
        if name not in own_names
        and not any(fnmatchcase(name, tool) for tool in known)
        and (_own_name(name) == name or _own_name(name) not in given)
    ]


def _own_name(tool: str) -> str:
    parts = tool.split("__", 2)
    return parts[2] if parts[0] == "mcp" and len(parts) == 3 else tool


def _warn(agent: str, what: str, name: str, known: list[str], consequence: str) -> None:
    close = get_close_matches(name, known, n=1)
    _LOG.warning(
        "the %s of tool %r of agent %r fits no tool that is known before a run%s: known are %s. Unless a run brings "
        "such a tool (from an MCP server, a toolset, a function), correct the name: %s",
        what,
        name,
        agent,
        f" (did you mean {close[0]!r}?)" if close else "",
        ", ".join(known),
        consequence,
    )
