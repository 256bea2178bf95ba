"""Pydantic AI agents as durable sessions on Dex.

```python
flow = session_flow(agent, tools={"look_up": ToolEffect.READ})
async with AgentHost(flow) as host:
    session = host.session("customer-42")
    await session.start()
    answer = await session.ask("Where is my order?")
```
"""

from dex_agents_pydantic_ai._flow import session_flow
from dex_agents_pydantic_ai._runner import PydanticAIRunner
from dex_agents_pydantic_ai._runs import DepsFactory

__all__ = ["DepsFactory", "PydanticAIRunner", "session_flow"]
