"""Test a runner without any engine: an in-memory session that keeps a durable session's rules.

```python
session = InMemorySession(lambda: MyRunner(agent), decide=approve_everything)
finished = await session.send("What is the weather in Oslo?")
```

Every Step gets a fresh runner, requests and results pass through JSON, and what a runner does is checked against the
contract in `dex_agents.runner`. `check_runner` runs one conversation in every way in which a session may run it.
"""

from dex_agents.testing._calls import RecordedCall
from dex_agents.testing._checks import RunnerContractError
from dex_agents.testing._conformance import RunnerReport, check_runner
from dex_agents.testing._decisions import (
    Decide,
    PendingQuestion,
    answer_with,
    approve,
    approve_everything,
    deny,
    refuse_questions,
)
from dex_agents.testing._events import RecordedEvents
from dex_agents.testing._session import InMemorySession, TurnFailed, TurnPlan

__all__ = [
    "Decide",
    "InMemorySession",
    "PendingQuestion",
    "RecordedCall",
    "RecordedEvents",
    "RunnerContractError",
    "RunnerReport",
    "TurnFailed",
    "TurnPlan",
    "answer_with",
    "approve",
    "approve_everything",
    "check_runner",
    "deny",
    "refuse_questions",
]
