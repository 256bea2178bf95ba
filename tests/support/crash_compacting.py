"""The scripted agent with compaction, for crash tests; served by `support.crash_worker`."""

from typing import Final

from dex_agents import AgentSessionFlow, AgentSessionOptions
from support.scripted_runner import ScriptedRunner

OPTIONS: Final = AgentSessionOptions(
    compaction=1000, retained_message_limit=4, message_window_size=2, message_chunk_size=2
)

RECALLED: Final = ["summary: 8 lines", *["user: pad 1200", "assistant: "] * 2, "user: recall"]
"""What the model has seen after six turns of `pad 1200`, when it is asked to recall."""

flow = AgentSessionFlow(ScriptedRunner(compacts=True), name="compacting", options=OPTIONS)
