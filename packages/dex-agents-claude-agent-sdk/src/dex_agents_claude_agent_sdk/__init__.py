"""Claude Agent SDK agents as durable sessions on Dex.

```python
flow = session_flow(agent, name="shop", tools={"look_up": ToolEffect.READ})
async with AgentHost(flow) as host:
    session = host.session("customer-42")
    await session.start()
    answer = await session.ask("Where is my order?")
```
"""

from dex_agents_claude_agent_sdk._flow import session_flow
from dex_agents_claude_agent_sdk._runner import ClaudeAgentRunner

__all__ = ["ClaudeAgentRunner", "session_flow"]
