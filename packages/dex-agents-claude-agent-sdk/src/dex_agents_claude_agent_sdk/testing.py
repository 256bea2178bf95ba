"""A model that follows a script, on loopback, for tests of agents with the real CLI and without a key.

```python
with ScriptedModel([[tool_use("mcp__shop__look_up", {"item": "chair"}, "a")], "There are three."]) as model:
    session = InMemorySession(lambda: ClaudeAgentRunner(model.drive(agent), tools={"look_up": ToolEffect.READ}))
    await session.send("How many chairs are there?")
assert model.shown[1].results == {"a": "3 chairs"}
```

The CLI that the SDK brings along runs for real; it takes about a second a segment.
"""

import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, cast

from claude_agent_sdk import ClaudeAgentOptions

from dex_agents_claude_agent_sdk._content import ApiBlock, as_text
from dex_agents_claude_agent_sdk._content import text_block as text
from dex_agents_claude_agent_sdk._messages_api import MessagesServer, Reply

__all__ = ["Reply", "ScriptedModel", "ShownRequest", "text", "thinking", "tool_use"]

Said = str | Sequence[ApiBlock] | Reply
"""What the model says: a text, the blocks of a message, or a whole reply."""


def thinking(words: str) -> ApiBlock:
    """Write a block of the model's reasoning."""
    return {"type": "thinking", "thinking": words}


def tool_use(name: str, arguments: dict[str, Any], call_id: str | None = None) -> ApiBlock:
    """Write a tool call.

    Args:
        name: The tool, as the model sees it: `mcp__<server>__<tool>`, or a tool of the CLI.
        arguments: A JSON object.
        call_id: The call's id, which no other call of the session has; None makes one up.
    """
    return {"type": "tool_use", "id": call_id or f"toolu_{secrets.token_hex(12)}", "name": name, "input": arguments}


@dataclass(frozen=True, kw_only=True)
class ShownRequest:
    """One request as the model got it.

    Attributes:
        body: The whole request.
    """

    body: dict[str, Any]

    @property
    def replies(self) -> int:
        """How many messages of the model the conversation holds."""
        roles = [message["role"] for message in self._messages]
        return sum(role == "assistant" != before for before, role in zip(["", *roles], roles, strict=False))

    @property
    def results(self) -> dict[str, str]:
        """All tool results as text, by call id."""
        return {
            block["tool_use_id"]: as_text(block.get("content"))
            for message in self._messages
            for block in _blocks(message)
            if block["type"] == "tool_result"
        }

    @property
    def ends_with_results(self) -> bool:
        """Whether the model is asked to go on behind tool results."""
        return any(block["type"] == "tool_result" for block in _blocks(self._messages[-1]))

    @property
    def tools(self) -> list[str]:
        """Names of the tools that the model may call."""
        return [str(one["name"]) for one in self.body.get("tools", [])]

    @property
    def system(self) -> str:
        """The system prompt, with what the CLI puts in front of it."""
        return as_text(self.body.get("system"))

    @property
    def _messages(self) -> list[dict[str, Any]]:
        # Newer models get messages of the system between the others.
        return [one for one in cast("list[dict[str, Any]]", self.body["messages"]) if one["role"] != "system"]


class ScriptedModel:
    """Says what a script says, and remembers each request; a context manager.

    A script that is a sequence is read by the number of the model's messages in the conversation, so that a repeated
    Step gets the same reply.

    Attributes:
        shown: The requests so far, in order.
    """

    def __init__(self, script: Sequence[Said] | Callable[[ShownRequest], Said]) -> None:
        """Take a script: replies by their number in the conversation, or a function that finds the reply."""
        self.shown: list[ShownRequest] = []
        self._script = script
        self._lock = threading.Lock()
        self._server = MessagesServer(self._answer)

    def drive(self, agent: ClaudeAgentOptions) -> ClaudeAgentOptions:
        """Return the agent with this model as its provider; the agent is not changed."""
        return replace(agent, env={**agent.env, **self._server.environment})

    def start(self) -> None:
        """Begin to serve, for programs that have no block to serve in; it ends with the process."""
        self._server.start()

    def __enter__(self) -> "ScriptedModel":
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.stop()

    def _answer(self, body: dict[str, Any]) -> Reply:
        request = ShownRequest(body=body)
        with self._lock:
            self.shown.append(request)
        if callable(self._script):
            said = self._script(request)
        elif request.replies < len(self._script):
            said = self._script[request.replies]
        else:
            # 400 is not repeated, so the turn fails with this sentence.
            return Reply(status=400, error=f"the script has {len(self._script)} replies, and one more was asked for")
        if isinstance(said, str):
            return Reply([text(said)])
        return said if isinstance(said, Reply) else Reply(said)


def _blocks(message: dict[str, Any]) -> list[ApiBlock]:
    content: object = message["content"]
    return cast("list[ApiBlock]", content) if isinstance(content, list) else [text(str(content))]
