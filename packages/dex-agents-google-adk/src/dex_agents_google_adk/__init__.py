"""Google ADK agents as durable sessions on Dex.

```python
flow = session_flow(agent, tools={"look_up": ToolEffect.READ})
async with AgentHost(flow) as host:
    session = host.session("customer-42")
    await session.start()
    answer = await session.ask("Where is my order?")
```
"""

from dex_agents_google_adk._flow import session_flow
from dex_agents_google_adk._runner import GoogleADKRunner
from dex_agents_google_adk._runs import InitialState, UserId

__all__ = ["GoogleADKRunner", "InitialState", "UserId", "session_flow"]
