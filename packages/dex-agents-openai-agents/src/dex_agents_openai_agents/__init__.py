"""OpenAI Agents SDK agents as durable sessions on Dex.

```python
flow = session_flow(agent, tools={"look_up": ToolEffect.READ})
async with AgentHost(flow) as host:
    session = host.session("customer-42")
    await session.start()
    answer = await session.ask("Where is my order?")
```
"""

from dex_agents_openai_agents._flow import session_flow
from dex_agents_openai_agents._runner import OpenAIAgentsRunner
from dex_agents_openai_agents._runs import ContextFactory

__all__ = ["ContextFactory", "OpenAIAgentsRunner", "session_flow"]
