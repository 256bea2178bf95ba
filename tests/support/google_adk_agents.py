"""Small Google ADK agents and sessions of them."""

from typing import Any

from google.adk.agents.llm_agent import LlmAgent
from google.adk.apps.app import App
from google.adk.workflow import BaseNode

from dex_agents.runner import Finished
from dex_agents.testing import Decide, InMemorySession, TurnFailed, approve_everything
from dex_agents_google_adk import GoogleADKRunner
from dex_agents_google_adk.testing import Script, ScriptedLlm


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
    agent: App | BaseNode,
    *,
    decide: Decide = approve_everything,
    settings: dict[str, Any] | None = None,
    **options: Any,
) -> InMemorySession:
    """Start a session; the other options are those of `GoogleADKRunner`."""
    return InMemorySession(lambda: GoogleADKRunner(agent, **options), decide=decide, settings=settings)


def simple(script: Script, *more: Any, **fields: Any) -> tuple[LlmAgent, ScriptedLlm, list[str]]:
    """Build an agent with a tool that works and one that raises, its model, and the log of what the tools did."""
    model = ScriptedLlm(script)
    done: list[str] = []

    def work(x: int) -> str:
        """Work."""
        done.append(f"work {x}")
        return f"worked {x}"

    def broken(x: int) -> str:
        """Break."""
        done.append(f"broken {x}")
        raise ConnectionError("no line")

    return LlmAgent(name="root", model=model, tools=[work, broken, *more], **fields), model, done
