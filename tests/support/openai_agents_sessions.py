"""What the tests of sessions share: a workshop's agent, and a session of it."""

from typing import Any

from agents import Agent, Tool, function_tool

from dex_agents.runner import Finished
from dex_agents.testing import InMemorySession, TurnFailed, approve_everything
from dex_agents_openai_agents import OpenAIAgentsRunner
from dex_agents_openai_agents.testing import Script, ScriptedModel, function_call


def call(name: str, call_id: str, **arguments: Any) -> Any:
    return function_call(name, arguments, call_id=call_id)


def finished(result: Finished | TurnFailed) -> Finished:
    assert isinstance(result, Finished), result
    return result


def failed(result: Finished | TurnFailed) -> TurnFailed:
    assert isinstance(result, TurnFailed), result
    return result


def session_of(agent: Agent[Any], **options: Any) -> InMemorySession:
    decide = options.pop("decide", approve_everything)
    settings = options.pop("settings", None)
    return InMemorySession(lambda: OpenAIAgentsRunner(agent, **options), decide=decide, settings=settings)


def simple(script: Script, *more: Tool, **options: Any) -> tuple[Agent[Any], ScriptedModel, list[str]]:
    model = ScriptedModel(script)
    done: list[str] = []

    @function_tool
    def work(x: int) -> str:
        """Do some work."""
        done.append(f"work {x}")
        return f"worked {x}"

    @function_tool
    def broken(x: int) -> str:
        done.append(f"broken {x}")
        raise ConnectionError("no line")

    return Agent(name="simple", model=model, tools=[work, broken, *more], **options), model, done
