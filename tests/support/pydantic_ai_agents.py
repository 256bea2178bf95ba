"""Small Pydantic AI agents and sessions of them."""

from typing import Any

from pydantic_ai import Agent
from pydantic_ai.agent import AbstractAgent

from dex_agents.runner import Finished
from dex_agents.testing import Decide, InMemorySession, TurnFailed, approve_everything
from dex_agents_pydantic_ai import PydanticAIRunner
from dex_agents_pydantic_ai.testing import Script, ScriptedModel


def finished(result: Finished | TurnFailed) -> Finished:
    """Return the answer of a turn that must have one."""
    assert isinstance(result, Finished), result
    return result


def failed(result: Finished | TurnFailed) -> TurnFailed:
    """Return how a turn failed that must have failed."""
    assert isinstance(result, TurnFailed), result
    return result


def error_of(result: Finished | TurnFailed) -> Exception:
    """Return the error of a turn that must have failed with one."""
    error = failed(result).error
    assert error is not None, "the turn was cancelled"
    return error


def session_of(
    agent: AbstractAgent[Any, Any],
    *,
    decide: Decide = approve_everything,
    settings: dict[str, Any] | None = None,
    **options: Any,
) -> InMemorySession:
    """Start a session; the other options are those of `PydanticAIRunner`."""
    return InMemorySession(lambda: PydanticAIRunner(agent, **options), decide=decide, settings=settings)


def simple(
    script: Script, *, streaming: bool = True, **options: Any
) -> tuple[Agent[object, str], ScriptedModel, list[str]]:
    """Build an agent with a tool that works and one that raises, its model, and the log of what the tools did."""
    model = ScriptedModel(script, streaming=streaming)
    agent: Agent[object, str] = Agent(model, **options)
    done: list[str] = []

    @agent.tool_plain
    def work(x: int) -> str:
        done.append(f"work {x}")
        return f"worked {x}"

    @agent.tool_plain
    def broken(x: int) -> str:
        done.append(f"broken {x}")
        raise ConnectionError("no line")

    return agent, model, done
