"""Turns what the Dex SDK raises into the errors of this package."""

import re
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Final

import grpc
from dex import (
    AsyncClient,
    DexServiceError,
    FlowClosingError,
    FlowNotActiveOrNotFoundError,
    FlowNotFoundError,
    FlowStatus,
    LongPollTimeoutError,
    RpcLockConflictError,
    ValueMappingError,
    WorkerInvocationError,
)
from pydantic_core import PydanticSerializationError, ValidationError

from dex_agents._storage.limits import json_problem
from dex_agents._storage.sealing import key_error_in
from dex_agents.errors import (
    ConfigurationError,
    DexAgentsError,
    EncryptionKeyError,
    EngineUnavailableError,
    NoWorkerAvailableError,
    SessionBudgetUsedUpError,
    SessionBusyError,
    SessionError,
    SessionFailedError,
    SessionFullError,
    SessionNotFoundError,
    SessionStoppedError,
    WorkerRaisedError,
)

NO_ROOM: Final = (SessionBudgetUsedUpError, SessionFullError)
"""What a Worker raises when nothing is left for a turn."""

_NO_WORKER_AVAILABLE: Final = "NO_WORKER_AVAILABLE"
"""How a Dex Server names the error of an RPC that no Worker took within its dispatch wait."""

_INTERRUPTED: Final = frozenset(
    f"dex.NotCompleted.{cause}" for cause in ("Disconnected", "Timeout", "HeartbeatTimeout", "EngineRestart")
)
"""How the embedded engine names the error of a call that a Worker took and brought no result of.

An RPC changes a session by its result alone, so nothing has changed and a repeat is safe.
"""

_UNANSWERED: Final = frozenset(
    {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED}
)
"""Codes of a server that is away, is going away, or does not get round to answering."""

_UNKNOWN_NAME: Final = "UNKNOWN_NAME"
"""How a Dex Server names the error of an RPC that none of the agent's Workers has."""

_KEY_ERRORS: Final = (ValueMappingError.__name__, EncryptionKeyError.__name__)
_KEY_ID: Final = re.compile(r" \[key_id=([^\]]*)\]$")
"""How the text of an `EncryptionKeyError` ends."""

_CREDENTIAL_REFUSED: Final = frozenset({grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED})


@contextmanager
def refused_values() -> Generator[None, None, None]:
    """Raise `ConfigurationError` for a value that no JSON holds: half of a surrogate pair, an object of a class."""
    try:
        yield
    except (ValueMappingError, PydanticSerializationError, UnicodeEncodeError, ValidationError) as error:
        raise _not_sendable(error) from error


@contextmanager
def raised_by_worker(session_id: str, *kinds: type[SessionError]) -> Generator[None]:
    """Raise an error of these kinds as what it was on the Worker that raised it; others pass as they are."""
    try:
        yield
    except WorkerRaisedError as error:
        for kind in kinds:
            if error.error_type.endswith(kind.__name__):
                raise kind(error.detail, session_id=session_id) from error
        raise


def check_json(name: str, value: object) -> None:
    """Refuse numbers that JSON does not have, which would be stored as null, and what is nested too deep to be read.

    Args:
        name: What the value is, for the error.
        value: Plain JSON data; what else it holds is looked at elsewhere.

    Raises:
        ConfigurationError: It has a NaN or an infinite number somewhere, or more than 100 levels.
    """
    problem = json_problem(value)
    if problem is not None:
        raise ConfigurationError(f"{name} {problem}: send null or a text instead")


def check_settings(values: Mapping[str, object]) -> None:
    """Refuse settings that cannot be stored as JSON and read again, before Pydantic refuses them in its own words.

    Raises:
        ConfigurationError: See `check_json`.
    """
    for name, value in values.items():
        check_json(f"the setting {name!r}", value)


def is_outage(error: DexServiceError) -> bool:
    """Tell whether the server did not answer, so that waiting and repeating can help."""
    return error.code in _UNANSWERED and not isinstance(error, WorkerInvocationError)


def is_interrupted(error: BaseException) -> bool:
    """Tell whether a Worker died, or fell silent, while it served the call, which has changed nothing then."""
    return isinstance(error, WorkerInvocationError) and error.worker_error_type in _INTERRUPTED


class ServiceErrors:
    """Translates the errors of one Client.

    Args:
        client: Asked for the state of a Flow when an error does not tell it.
        address: Named when the server does not answer.
    """

    def __init__(self, client: AsyncClient, address: str) -> None:
        self._client = client
        self._address = address

    @asynccontextmanager
    async def translated(self, session_id: str | None = None) -> AsyncGenerator[None]:
        """Raise this package's error in place of the SDK's.

        Args:
            session_id: The session that the calls inside are about; None when they are about none.
        """
        try:
            yield
        except DexServiceError as error:
            raise await self._translation(error, session_id) from error
        except (ValueMappingError, PydanticSerializationError, UnicodeEncodeError) as error:
            missing = key_error_in(error) if isinstance(error, ValueMappingError) else None
            raise missing or _not_sendable(error) from error

    async def _translation(self, error: DexServiceError, session_id: str | None) -> DexAgentsError:
        gone = isinstance(error, FlowNotActiveOrNotFoundError | FlowNotFoundError | FlowClosingError)
        try:
            if gone and session_id is not None:
                return await self._why_inactive(session_id)
            if isinstance(error, WorkerInvocationError) and _is_unanswered(error):
                return await self._no_worker(session_id, error)
        except DexServiceError as second_error:
            return self._without_asking(second_error, session_id)
        return self._without_asking(error, session_id)

    def _without_asking(self, error: DexServiceError, session_id: str | None) -> DexAgentsError:
        if isinstance(error, FlowNotFoundError) and session_id is not None:
            return self._not_found(session_id)
        if isinstance(error, RpcLockConflictError) and session_id is not None:
            return SessionBusyError(
                f"session {session_id!r} is busy: a Step held the lock during the whole time; repeat the call",
                session_id=session_id,
            )
        if isinstance(error, WorkerInvocationError):
            if _is_unanswered(error):
                return self._no_worker_of("", session_id, error)
            detail = error.worker_error_detail or error.detail
            lacking = _KEY_ID.search(detail) if error.worker_error_type.endswith(_KEY_ERRORS) else None
            if lacking is not None:
                return EncryptionKeyError(
                    f"a Worker could not serve the call: {detail[: lacking.start()]}; give all clients and Workers of "
                    "the agent the same key",
                    key_id=lacking.group(1),
                )
            if error.worker_error_type == _UNKNOWN_NAME:
                detail += (
                    "; they have an earlier release than this client: update all Workers of the agent and repeat the "
                    "call, nothing was changed"
                )
            return WorkerRaisedError(error_type=error.worker_error_type, detail=detail)
        if is_outage(error):
            return self.unavailable(error.detail)
        if error.code in _CREDENTIAL_REFUSED:
            return ConfigurationError(
                f"the Dex Server at {self._address} refuses this credential: {error.detail}; pass a valid `credential`"
            )
        return DexAgentsError(
            f"the Dex Server at {self._address} refused {error.operation} ({error.code.name}): {error.detail}"
        )

    def unavailable(self, detail: str) -> EngineUnavailableError:
        """Build the error for a server that does not answer."""
        return EngineUnavailableError(
            f"no Dex Server answers at {self._address} ({detail}): start it, for example with `dex-agents dev`, "
            "or correct the address"
        )

    def _not_found(self, session_id: str) -> SessionNotFoundError:
        return SessionNotFoundError(
            f"there is no session {session_id!r} at {self._address}: start it first, or check the id and the address",
            session_id=session_id,
        )

    async def _why_inactive(self, session_id: str) -> DexAgentsError:
        try:
            flow = await self._client.describe_flow(session_id)
        except FlowNotFoundError:
            return self._not_found(session_id)
        if flow.status is FlowStatus.FAILED:
            reason = await self._reason(session_id) or "the reason is not known"
            return SessionFailedError(
                f"session {session_id!r} has failed: {reason}; it can still be read, start a new one to go on",
                session_id=session_id,
            )
        if flow.status is FlowStatus.COMPLETED:  # nothing but a purge completes a session
            return SessionStoppedError(
                f"session {session_id!r} was purged: nothing of it is kept, start a new one, with another id, to go on",
                session_id=session_id,
            )
        reason = await self._reason(session_id)
        why = f" ({reason})" if reason else ""
        return SessionStoppedError(
            f"session {session_id!r} was stopped{why}: it can still be read, start a new one to go on",
            session_id=session_id,
            reason=reason,
        )

    async def _reason(self, session_id: str) -> str:
        try:
            result = await self._client.wait_for_flow(session_id, timedelta(seconds=1))
        except LongPollTimeoutError:
            return ""
        return result.error_message or ""

    async def _no_worker(self, session_id: str | None, error: WorkerInvocationError) -> NoWorkerAvailableError:
        agent = "" if session_id is None else (await self._client.describe_flow(session_id)).flow_type
        return self._no_worker_of(agent, session_id, error)

    def _no_worker_of(self, agent: str, session_id: str | None, error: WorkerInvocationError) -> NoWorkerAvailableError:
        whose = f"agent {agent!r}" if agent else "this agent"
        asked = f"for session {session_id!r} " if session_id else ""
        if is_interrupted(error):
            detail = error.worker_error_detail or error.detail
            text = (
                f"the Worker of {whose} that took a call {asked}at {self._address} did not finish it ({detail}): "
                "it changed nothing, so repeat it"
            )
        else:
            text = (
                f"no Worker of {whose} answered {asked}at {self._address}: start one, for example with "
                "`dex-agents worker`, and repeat the call; nothing was lost"
            )
        return NoWorkerAvailableError(
            text,
            agent=agent,
            session_id=session_id or "",
            address=self._address,
        )


def _not_sendable(error: Exception) -> ConfigurationError:
    return ConfigurationError(f"a value cannot be sent, it is no JSON or no Unicode text: {error}")


def _is_unanswered(error: WorkerInvocationError) -> bool:
    unanswered = error.worker_code in _UNANSWERED or error.code is grpc.StatusCode.DEADLINE_EXCEEDED
    named = error.worker_error_type == _NO_WORKER_AVAILABLE or is_interrupted(error)
    return named or (unanswered and not error.worker_error_type)
