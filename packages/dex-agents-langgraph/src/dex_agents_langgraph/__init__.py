"""LangGraph and LangChain agents as durable sessions on Dex.

```python
flow = session_flow(agent, tools={"look_up": ToolEffect.READ})
async with AgentHost(flow) as host:
    session = host.session("customer-42")
    await session.start()
    answer = await session.ask("Where is my order?")
```
"""

from dex_agents_langgraph._flow import session_flow
from dex_agents_langgraph._report import Placement
from dex_agents_langgraph._runner import InputFactory, LangGraphRunner
from dex_agents_langgraph._runs import ContextFactory, GraphFactory

__all__ = ["ContextFactory", "GraphFactory", "InputFactory", "LangGraphRunner", "Placement", "session_flow"]
