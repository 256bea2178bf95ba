"""What calls ask before they have a result: confirmations, credentials, answers, results from outside."""

import json
import time
from typing import Any

import pytest
from fastapi.openapi.models import APIKey, APIKeyIn, OAuth2, OAuthFlowAuthorizationCode, OAuthFlows
from google.adk.agents.llm_agent import LlmAgent
from google.adk.apps.app import App, ResumabilityConfig
from google.adk.auth.auth_credential import AuthCredential, AuthCredentialTypes, OAuth2Auth
from google.adk.auth.auth_tool import AuthConfig
from google.adk.auth.credential_service.base_credential_service import BaseCredentialService
from google.adk.tools._request_input_tool import request_input
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.long_running_tool import LongRunningFunctionTool
from google.adk.tools.tool_context import ToolContext

from dex_agents.testing import PendingQuestion, TurnPlan, answer_with, approve, deny
from dex_agents.tools import Answer, ToolEffect, ToolPolicy
from dex_agents_google_adk.testing import ScriptedLlm, call
from support.google_adk_agents import failed, finished, session_of, simple

pytestmark = pytest.mark.filterwarnings("ignore:.*EXPERIMENTAL.*:UserWarning")


def payer(log: list[str]) -> FunctionTool:
    def pay(euros: int) -> dict[str, int]:
        """Pay."""
        log.append(f"pay {euros}")
        return {"paid": euros}

    return FunctionTool(pay, require_confirmation=True)


async def test_a_confirmation_is_asked_and_its_arguments_can_be_edited() -> None:
    log: list[str] = []
    asked: list[PendingQuestion] = []

    def decide(pending: PendingQuestion) -> Answer:
        asked.append(pending)
        return approve(arguments={"euros": 3})

    agent, model, _ = simple([[call("pay", {"euros": 5}, "a")], "done"], payer(log))
    session = session_of(agent, decide=decide)
    finished(await session.send("go"))
    assert log == ["pay 3"]
    assert model.shown[1].results == {"a": {"paid": 3}}
    [question] = [one.question for one in asked]
    assert question.kind == "approval"
    assert "pay()" in question.prompt
    assert session.steps.count("AwaitToolApproval") == 1


async def test_a_refused_confirmation_tells_the_model_why() -> None:
    log: list[str] = []
    agent, model, _ = simple([[call("pay", {"euros": 5}, "a")], "done"], payer(log))
    finished(await session_of(agent, decide=lambda pending: deny("too much")).send("go"))
    assert log == []
    assert model.shown[1].results == {"a": {"error": "This tool call is rejected. Reason: too much"}}


async def test_a_policy_that_asks_first_is_enough_for_a_confirmation() -> None:
    log: list[str] = []
    agent, model, _ = simple([[call("pay", {"euros": 5}, "a")], "done"], payer(log))
    gated = ToolPolicy(effect=ToolEffect.NON_IDEMPOTENT_WRITE, approval=True)
    session = session_of(agent, tools={"pay": gated})
    finished(await session.send("go"))
    assert log == ["pay 5"]
    assert model.shown[1].results == {"a": {"paid": 5}}
    assert session.steps.count("AwaitToolApproval") == 1


async def test_a_tool_that_asks_by_itself_hears_the_answer_and_its_payload() -> None:
    def transfer(euros: int, tool_context: ToolContext) -> dict[str, Any]:
        """Transfer."""
        confirmation = tool_context.tool_confirmation
        if confirmation is None:
            tool_context.request_confirmation(hint=f"Transfer {euros}?", payload={"limit": 0})
            return {"status": "waiting"}
        return {"confirmed": confirmation.confirmed, "payload": confirmation.payload}

    answers = [approve(arguments={"limit": 9}), deny("no")]
    agent, model, _ = simple(
        [[call("transfer", {"euros": 5}, "a")], [call("transfer", {"euros": 6}, "b")], "x"], transfer
    )
    finished(await session_of(agent, decide=lambda pending: answers.pop(0)).send("go"))
    # One request less than a plain run makes, which lets the model speak before the person has answered.
    assert len(model.shown) == 3
    assert model.shown[2].results == {
        "a": {"confirmed": True, "payload": {"limit": 9}},
        "b": {"confirmed": False, "payload": {"limit": 0}},
    }


async def test_a_question_of_the_model_is_a_question_of_the_session() -> None:
    asked: list[PendingQuestion] = []

    def decide(pending: PendingQuestion) -> Answer:
        asked.append(pending)
        return answer_with({"color": "red"})

    schema = {"type": "object", "properties": {"color": {"type": "string"}}}
    arguments = {"message": "Which color?", "response_schema": schema}
    agent, model, _ = simple([[call("adk_request_input", arguments, "a")], "red it is"], request_input)
    session = session_of(agent, decide=decide)
    assert finished(await session.send("go")).text == "red it is"
    assert model.shown[1].results == {"a": {"color": "red"}}
    assert (asked[0].question.kind, asked[0].question.prompt) == ("answer", "Which color?")
    assert asked[0].question.answer_schema == schema


def ticket(topic: str, tool_context: ToolContext) -> dict[str, str]:
    """Open a ticket."""
    tool_context.state["ticket"] = topic
    return {"status": "pending"}


def fire(topic: str) -> None:
    """Start something."""


@pytest.mark.parametrize(
    ("value", "is_error", "told"),
    [({"ok": 1}, False, {"ok": 1}), ("7", False, {"result": "7"}), ("no", True, {"error": "no"})],
)
async def test_a_long_running_tool_without_a_result_is_answered_from_outside(
    value: Any, is_error: bool, told: dict[str, Any]
) -> None:
    asked: list[PendingQuestion] = []

    def decide(pending: PendingQuestion) -> Answer:
        asked.append(pending)
        return answer_with(value, is_error=is_error)

    agent, model, _ = simple([[call("fire", {"topic": "x"}, "a")], "done"], LongRunningFunctionTool(fire))
    finished(await session_of(agent, decide=decide).send("go"))
    assert asked[0].question.kind == "external_result"
    assert model.shown[1].results == {"a": told}


async def test_a_first_result_of_a_long_running_tool_is_its_result_in_an_app_that_does_not_pause() -> None:
    agent, model, _ = simple([[call("ticket", {"topic": "x"}, "a")], "done"], LongRunningFunctionTool(ticket))
    finished(await session_of(agent).send("go"))
    assert model.shown[1].results == {"a": {"status": "pending"}}


async def test_an_app_that_pauses_waits_for_the_late_result_of_a_long_running_tool() -> None:
    asked: list[PendingQuestion] = []

    def decide(pending: PendingQuestion) -> Answer:
        asked.append(pending)
        return answer_with({"status": "closed"})

    agent, model, _ = simple(
        [[call("ticket", {"topic": "x"}, "a")], "done"], LongRunningFunctionTool(ticket), instruction="{ticket?}"
    )
    app = App(name="root", root_agent=agent, resumability_config=ResumabilityConfig(is_resumable=True))
    finished(await session_of(app, decide=decide).send("go"))
    assert asked[0].question.detail == {"status": "pending"}
    assert model.shown[1].results == {"a": {"status": "closed"}}
    assert model.shown[1].instruction.startswith("x")


CONFIG = AuthConfig(
    auth_scheme=APIKey.model_validate({"in": APIKeyIn.header, "name": "X-Key"}),
    raw_auth_credential=AuthCredential(auth_type=AuthCredentialTypes.API_KEY, api_key="configured-secret"),
    credential_key="shop",
)


class Vault(BaseCredentialService):
    """Holds the application's secrets in the Worker."""

    def __init__(self) -> None:
        self.is_filled = False

    async def load_credential(self, auth_config: AuthConfig, callback_context: Any) -> AuthCredential | None:
        assert auth_config.credential_key == "shop"
        if not self.is_filled:
            return None
        return AuthCredential(auth_type=AuthCredentialTypes.API_KEY, api_key="real-secret")

    async def save_credential(self, auth_config: AuthConfig, callback_context: Any) -> None:
        raise AssertionError("nothing is saved")


def order(item: str, tool_context: ToolContext) -> dict[str, str]:
    """Order."""
    credential = tool_context.get_auth_response(CONFIG)
    if credential is None:
        tool_context.request_credential(CONFIG)
        return {"status": "needs a key"}
    tool_context.state["cached"] = credential
    return {"ordered": item, "key_ends_with": (credential.api_key or "")[-6:]}


@pytest.mark.parametrize("filled", [True, False])
async def test_a_credential_comes_from_the_worker_and_never_enters_the_session(filled: bool) -> None:
    vault = Vault()
    vault.is_filled = filled
    asked: list[PendingQuestion] = []

    def decide(pending: PendingQuestion) -> Answer:
        asked.append(pending)
        vault.is_filled = True
        return answer_with("done")

    agent, model, _ = simple([[call("order", {"item": "lamp"}, "a"), call("work", {"x": 1}, "b")], "done"], order)
    session = session_of(agent, decide=decide, credential_service=vault)
    finished(await session.send("go"))
    assert model.shown[1].results == {
        "a": {"ordered": "lamp", "key_ends_with": "secret"},
        "b": {"result": "worked 1"},
    }
    assert len(asked) == (0 if filled else 1)
    stored = json.dumps([session.state.model_dump() if session.state else None, [str(one) for one in session.calls]])
    assert "real-secret" not in stored
    assert "configured-secret" not in stored + str([one.question for one in asked])
    if asked:
        assert asked[0].question.detail == {"credential_key": "shop", "scheme": "apiKey", "auth_uri": None}


SIGN_IN = AuthConfig(
    auth_scheme=OAuth2(
        flows=OAuthFlows(
            authorizationCode=OAuthFlowAuthorizationCode(
                authorizationUrl="https://shop.example/authorize", tokenUrl="https://shop.example/token", scopes={}
            )
        )
    ),
    raw_auth_credential=AuthCredential(
        auth_type=AuthCredentialTypes.OAUTH2,
        oauth2=OAuth2Auth(client_id="app", client_secret="configured-secret", redirect_uri="https://app.example"),
    ),
    credential_key="shop",
)


class SignInVault(Vault):
    """Holds the token that a user's sign-in brought."""

    async def load_credential(self, auth_config: AuthConfig, callback_context: Any) -> AuthCredential | None:
        if not self.is_filled:
            return None
        token = OAuth2Auth(client_id="app", access_token="real-secret", expires_at=int(time.time()) + 3600)
        return AuthCredential(auth_type=AuthCredentialTypes.OAUTH2, oauth2=token)


class LockedTools(BaseToolset):
    """A toolset whose tools can be listed with a credential only."""

    def get_auth_config(self) -> AuthConfig | None:
        return SIGN_IN

    async def get_tools(self, readonly_context: Any = None) -> list[BaseTool]:
        def unlock(door: str) -> str:
            """Unlock."""
            return f"{door} is open"

        return [FunctionTool(unlock)]

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("turn_ends_early", [False, True])
async def test_a_toolset_asks_for_its_credential_before_the_model_is_called(turn_ends_early: bool) -> None:
    vault = SignInVault()
    asked: list[PendingQuestion] = []

    def decide(pending: PendingQuestion) -> Answer:
        asked.append(pending)
        vault.is_filled = True
        return answer_with("done")

    model = ScriptedLlm([[call("unlock", {"door": "A"}, "a")], "done"])
    agent = LlmAgent(name="root", model=model, tools=[LockedTools()])
    session = session_of(agent, decide=decide, credential_service=vault)
    if turn_ends_early:
        failed(await session.send("go", TurnPlan(fail_model_step=2)))
        assert model.shown == []
    assert finished(await session.send("go")).text == "done"
    assert model.shown[1].results == {"a": {"result": "A is open"}}
    assert len(asked) == 1
    assert asked[0].call is None
    assert "-secret" not in str(session.state) + str(asked)
    detail: Any = asked[0].question.detail
    assert detail["auth_uri"].startswith("https://shop.example/authorize?")
