"""Runs the program with which an adapter's README begins, plainly and durably, with a model that follows a script.

python tools/readme_program.py FRAMEWORK README   # exits with 1 when the session's answer is another one

It needs only what the adapter's wheel brings along.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

ANSWER: Final = "It is on its way."
"""What the scripted models say in the end."""

_ASKED: Final = {"order_id": "A-17"}

_MODEL: Final[Mapping[str, tuple[str, str]]] = {
    # Claude Code starts in a process of its own, which finds its model by the agent's environment.
    "claude-agent-sdk": ("\n\nasync def plain(", "\nagent = model.drive(agent)\n\n\nasync def plain("),
    "google-adk": ('model="gemini-3-flash"', "model=model"),
    "langgraph": ('model = "openai:gpt-5.2"  # or any chat model of LangChain\'s\n', ""),
    "openai-agents": ('model="gpt-5.2"', "model=model"),
    "pydantic-ai": ('"openai:gpt-5.2"', "model"),
}
"""Where a README names its model, and what stands there instead: the one name `model`."""


def python_blocks(document: Path) -> list[str]:
    """Return the Python of a document, block by block."""
    return re.findall(r"```python\n(.*?)```", document.read_text(encoding="utf-8"), flags=re.DOTALL)


def load(framework: str, document: Path, model: object, *, blocks: int | None = None) -> dict[str, Any]:
    """Run the Python of an adapter's README as one module.

    Args:
        framework: The adapter's name in `compat/`.
        document: The README.
        model: Takes the place of the model that the README names.
        blocks: How many blocks, from the first on; None runs all.

    Returns:
        The names that the module has then.

    Raises:
        ValueError: The README does not name its model as it did.
    """
    text = "\n".join(python_blocks(document)[:blocks])
    printed, instead = _MODEL[framework]
    if text.count(printed) != 1:
        raise ValueError(f"{document} has {printed!r} {text.count(printed)} times; it must name its model once")
    names: dict[str, Any] = {"__name__": "readme", "model": model}
    # Without this file's own imports from the future, which would change the program.
    code = compile(text.replace(printed, instead), str(document), "exec", dont_inherit=True)
    exec(code, names)  # noqa: S102  the README's own code
    return names


def _claude_agent_sdk() -> Any:
    from dex_agents_claude_agent_sdk.testing import ScriptedModel, tool_use

    model = ScriptedModel([[tool_use("mcp__shop__look_up_order", _ASKED, "a")], ANSWER])
    model.start()
    return model


def _google_adk() -> Any:
    from dex_agents_google_adk.testing import ScriptedLlm, call

    return ScriptedLlm([[call("look_up_order", _ASKED, "a")], ANSWER])


def _langgraph() -> Any:
    from dex_agents_langgraph.testing import ScriptedChatModel, reply, tool_call

    return ScriptedChatModel([reply("", tool_call("look_up_order", "a", **_ASKED)), ANSWER])


def _openai_agents() -> Any:
    from dex_agents_openai_agents.testing import ScriptedModel, function_call

    return ScriptedModel([[function_call("look_up_order", _ASKED, call_id="a")], ANSWER])


def _pydantic_ai() -> Any:
    from pydantic_ai.messages import ToolCallPart

    from dex_agents_pydantic_ai.testing import ScriptedModel

    return ScriptedModel([[ToolCallPart("look_up_order", _ASKED, "a")], ANSWER])


SCRIPTED: Final[Mapping[str, Callable[[], Any]]] = {
    "claude-agent-sdk": _claude_agent_sdk,
    "google-adk": _google_adk,
    "langgraph": _langgraph,
    "openai-agents": _openai_agents,
    "pydantic-ai": _pydantic_ai,
}
"""Each makes a model that looks up the README's order and then says `ANSWER`; `shown` tells what it was shown."""


async def play(framework: str, document: Path) -> str:
    """Run the agent of an adapter's README plainly and in a session, in the current directory.

    Returns:
        The session's answer.

    Raises:
        ValueError: The session did not show the model the result that the plain run showed it.
    """
    model: Any = SCRIPTED[framework]()
    names = load(framework, document, model, blocks=2)
    await names["plain"]()
    answer: str = await names["durable"]()
    # One request of the plain run, and one of the session, comes after the tool.
    results = [shown.results for shown in model.shown if shown.results]
    if len(results) != 2 or results[0] != results[1]:
        raise ValueError(f"{document}: the plain run and the session showed the model the results {results}")
    return answer


def main(arguments: list[str] | None = None) -> int:
    """Run the command.

    Returns:
        The exit code: 1 when the session's answer is not the model's.
    """
    framework, document = sys.argv[1:] if arguments is None else arguments
    answer = asyncio.run(play(framework, Path(document)))
    print(answer)
    return 0 if answer == ANSWER else 1


if __name__ == "__main__":
    sys.exit(main())
