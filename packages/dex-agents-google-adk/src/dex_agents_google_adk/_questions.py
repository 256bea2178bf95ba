"""What a call asks before it has a result: a confirmation, a credential, an answer, a result from outside."""

from typing import Any, Final, cast

from google.adk.auth.auth_tool import AuthConfig
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.genai import types
from pydantic import JsonValue

from dex_agents.runner import CallToolRequest
from dex_agents.tools import Answer, Asks, Question
from dex_agents_google_adk._private import REQUEST_INPUT
from dex_agents_google_adk._state import ToolRecord

_REJECTED: Final = "This tool call is rejected."
"""How ADK itself words a call that nobody confirmed."""


def ask_for_confirmation(request: CallToolRequest, wanted: ToolConfirmation) -> Asks:
    """Ask whether the call may happen, as the tool or its declaration wants it.

    A denial is no settlement yet: ADK words it, and a tool that asks by itself must hear it.
    """
    question = _question_id("confirmation", request)
    detail: JsonValue = wanted.model_dump(mode="json", exclude_none=True)
    return Asks(
        questions=(
            Question(
                id=question,
                kind="approval",
                prompt=wanted.hint or f"May {request.call.name!r} be called?",
                detail=detail,
            ),
        ),
        resume={"question": question, "confirmation": detail},
    )


def confirmation_of(request: CallToolRequest) -> ToolConfirmation | None:
    """Return what people said to the confirmation that the call asked for; None when it asked for none."""
    resume = _resume(request)
    answer = _answer(request)
    if answer is None or "confirmation" not in resume:
        return None
    wanted = ToolConfirmation.model_validate(resume["confirmation"])
    given = answer.value if answer.value is not None else answer.arguments
    payload = wanted.payload if wanted.payload is None or given is None else given
    return ToolConfirmation(hint=wanted.hint, confirmed=bool(answer.approved), payload=payload)


def arguments_to_run(request: CallToolRequest) -> dict[str, Any] | None:
    """Return the arguments that a person edited; None to run with the model's.

    The arguments of an approval that asks for a payload are that payload.
    """
    if isinstance(request.arguments, dict):
        return dict(request.arguments)
    resume = _resume(request)
    answer = _answer(request)
    if answer is None or "confirmation" not in resume or not isinstance(answer.arguments, dict):
        return None
    wants_payload = ToolConfirmation.model_validate(resume["confirmation"]).payload is not None
    return None if wants_payload else dict(answer.arguments)


def with_reason(record: ToolRecord, request: CallToolRequest) -> ToolRecord:
    """Tell the model why a call was rejected, when a person or the session said why."""
    answer = _answer(request)
    if answer is None or not answer.message or record.response.get("error") != _REJECTED:
        return record
    return record.model_copy(update={"response": {"error": f"{_REJECTED} Reason: {answer.message}"}})


def ask_for_result(request: CallToolRequest, receipt: ToolRecord | None = None) -> Asks:
    """Ask for the result of a call that is answered from outside.

    Args:
        request: The call.
        receipt: What the tool returned at once.
    """
    is_question = request.call.name == REQUEST_INPUT
    question = _question_id("answer" if is_question else "result", request)
    arguments = request.call.arguments if isinstance(request.call.arguments, dict) else {}
    message = arguments.get("message")
    return Asks(
        questions=(
            Question(
                id=question,
                kind="answer" if is_question else "external_result",
                prompt=message if isinstance(message, str) else f"What is the result of {request.call.name!r}?",
                answer_schema=arguments.get("response_schema") if is_question else None,
                detail=None if receipt is None else cast("JsonValue", receipt.response),
            ),
        ),
        resume={"question": question, "result": None if receipt is None else receipt.model_dump(mode="json")},
    )


def external_result(request: CallToolRequest) -> ToolRecord | None:
    """Return the result that came from outside; None when the call did not ask for one."""
    resume = _resume(request)
    answer = _answer(request)
    if answer is None or "result" not in resume:
        return None
    first = resume["result"]
    receipt = ToolRecord(response={}) if first is None else ToolRecord.model_validate(first)
    return receipt.model_copy(update={"response": given_result(answer).response})


def given_result(answer: Answer) -> ToolRecord:
    """Return what people gave as the result of a call."""
    value = answer.value
    if answer.is_error:
        return ToolRecord(response={"error": value})
    return ToolRecord(response=value if isinstance(value, dict) else {"result": value})


def input_question(call: types.FunctionCall) -> Question:
    """Write the question that a node of a graph asks people."""
    arguments: dict[str, Any] = call.args or {}
    return Question(
        id=call.id or "input",
        kind="answer",
        prompt=str(arguments.get("message") or "The graph needs an answer."),
        answer_schema=arguments.get("response_schema") or arguments.get("responseSchema"),
        detail=arguments.get("payload"),
    )


def ask_for_credential(request: CallToolRequest, config: AuthConfig) -> Asks:
    """Ask for a credential, which only the credential service may hold."""
    question = credential_question(_question_id("credential", request), config, f"The tool {request.call.name!r}")
    return Asks(questions=(question,), resume={"question": question.id})


def credential_question(question_id: str, config: AuthConfig | None, who: str) -> Question:
    """Write the question for a credential: which one, of what kind, and where to get it, without any secret.

    Args:
        question_id: The question's id.
        config: What is asked for, when it is known.
        who: Who asks.
    """
    detail: dict[str, JsonValue] = {}
    key = None if config is None else config.credential_key
    if config is not None:
        exchanged = config.exchanged_auth_credential
        oauth = None if exchanged is None else exchanged.oauth2
        detail = {
            "credential_key": key,
            "scheme": str(getattr(config.auth_scheme.type_, "value", config.auth_scheme.type_)),
            "auth_uri": None if oauth is None else oauth.auth_uri,
        }
    return Question(
        id=question_id,
        kind="answer",
        prompt=f"{who} needs the credential {key!r}. Put it into the application's credential service, then answer; "
        "the answer itself must hold no secret.",
        detail=detail,
    )


def toolset_question(call: types.FunctionCall) -> Question:
    """Write the question for a credential that a toolset asks for before its tools can be listed."""
    arguments = call.args or {}
    given: Any = arguments.get("authConfig") or arguments.get("auth_config")
    config = None if given is None else AuthConfig.model_validate(given)
    return credential_question(call.id or "credential", config, "A toolset")


def _question_id(kind: str, request: CallToolRequest) -> str:
    return f"{kind}-{len(request.answers) + 1}"


def _resume(request: CallToolRequest) -> dict[str, JsonValue]:
    return request.resume if isinstance(request.resume, dict) else {}


def _answer(request: CallToolRequest) -> Answer | None:
    asked = _resume(request).get("question")
    return next((answer for answer in reversed(request.answers) if answer.question_id == asked), None)
