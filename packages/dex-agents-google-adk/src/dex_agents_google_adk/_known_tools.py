"""What a user interface may know of an agent's tools before any run, and where each of them runs."""

from google.adk.agents.base_agent import BaseAgent
from google.adk.agents.llm_agent import LlmAgent
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.workflow import START, BaseNode, Workflow

from dex_agents.runner import KnownTool
from dex_agents.tools import ToolPolicies, find_policy
from dex_agents_google_adk._custom_agents import is_custom
from dex_agents_google_adk._graphs import walk_nodes
from dex_agents_google_adk._private import is_declared
from dex_agents_google_adk._sessions import tools_of
from dex_agents_google_adk._tools import runs_inline


def list_known_tools(root: BaseNode, policies: ToolPolicies) -> tuple[KnownTool, ...]:
    """List the tools of all agents under a root; those of toolsets are known to a run only.

    What an agent does inside RunModel beside its tools is listed too: code executors, and agents and nodes that run
    code of their own. All of that is repeated when the Step is.

    Args:
        root: The root agent.
        policies: Policies by tool name.
    """
    return tuple(tool for node in walk_nodes(root) for tool in _of_node(node, root, policies))


def report_tools(root: BaseNode, policies: ToolPolicies) -> str:
    """Say for people which tools are Steps of their own, which run inside RunModel, and what only a run will tell.

    Args:
        root: The root agent.
        policies: Policies by tool name.
    """
    tools = list_known_tools(root, policies)

    def named(placement: str) -> str:
        found = [f"{tool.owner}/{tool.name}" if tool.owner else tool.name for tool in tools]
        return ", ".join(name for name, tool in zip(found, tools, strict=True) if tool.placement == placement) or "none"

    lines = [
        f"Steps of their own: {named('own_step')}",
        f"inside RunModel, and repeated with it: {named('inside_model_step')}",
        f"run by the provider: {named('provider')}",
    ]
    toolsets = [
        f"{type(tool).__name__} of {node.name}"
        for node in walk_nodes(root)
        if isinstance(node, LlmAgent)
        for tool in tools_of(node)
        if isinstance(tool, BaseToolset)
    ]
    if toolsets:
        lines.append(f"toolsets, whose tools a run lists and which are Steps of their own: {', '.join(toolsets)}")
    return "\n".join(lines)


def _of_node(node: BaseNode, root: BaseNode, policies: ToolPolicies) -> list[KnownTool]:
    owner = "" if node is root else node.name
    if not isinstance(node, LlmAgent):
        is_agent = isinstance(node, BaseAgent)
        is_plain = not is_custom(node) if is_agent else isinstance(node, Workflow) or node.name == START.name
        kind = "agent" if is_agent else "node"
        return [] if is_plain else [_inside(f"{kind}:{type(node).__name__}", owner)]
    found = [_of_tool(tool, owner, policies) for tool in tools_of(node) if not isinstance(tool, BaseToolset)]
    if node.code_executor is not None:
        found.append(_inside(f"code_executor:{type(node.code_executor).__name__}", owner))
    if node.planner is not None:
        found.append(_inside(f"planner:{type(node.planner).__name__}", owner))
    return found


def _of_tool(tool: object, owner: str, policies: ToolPolicies) -> KnownTool:
    if not isinstance(tool, BaseTool):
        name: str = getattr(tool, "__name__", type(tool).__name__)
        inline = isinstance(tool, BaseNode)
        return (
            _inside(tool.name, owner)
            if inline
            else KnownTool(name=name, owner=owner, policy=find_policy(policies, name))
        )
    if runs_inline(tool.name, tool):
        return _inside(tool.name, owner)
    if not is_declared(tool):
        # Nothing that the model could call: it changes the request, and a provider may run it.
        return KnownTool(name=tool.name, owner=owner, placement="provider")
    return KnownTool(name=tool.name, owner=owner, policy=find_policy(policies, tool.name))


def _inside(name: str, owner: str) -> KnownTool:
    return KnownTool(name=name, owner=owner, placement="inside_model_step")
