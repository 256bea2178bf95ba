"""Lists the sessions of one agent by their indexed Attributes."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from dex import FlowStatus, SearchFlowEntry

from dex_agents._storage.schema import STATUS, TITLE, USER
from dex_agents.errors import ConfigurationError
from dex_agents.snapshot import AgentSnapshot

Lifecycle = Literal["running", "stopped", "failed"]

_LIFECYCLES: Final[dict[FlowStatus, Lifecycle]] = {
    FlowStatus.RUNNING: "running",
    FlowStatus.FAILED: "failed",
    FlowStatus.SERVER_SIDE_TIMEOUT_INTERNAL_ONLY: "failed",
}


def lifecycle_of(status: FlowStatus) -> Lifecycle:
    """Return what a Flow's status means for its session."""
    return _LIFECYCLES.get(status, "stopped")


@dataclass(frozen=True, kw_only=True)
class SessionSummary:
    """One session in a list.

    Attributes:
        session_id: The session's id.
        lifecycle: `running`, `stopped` or `failed`.
        status: A `SessionStatus`, or a word of a newer version; the last one of a session that has ended, and `purged`
            when it was purged.
        title: Free text of the application.
        user: Whom it belongs to.
        started_at: When it was started, with time zone.
    """

    session_id: str
    lifecycle: Lifecycle
    status: str
    title: str
    user: str
    started_at: datetime


@dataclass(frozen=True, kw_only=True)
class SessionPage:
    """A page of sessions, in the server's order.

    Attributes:
        sessions: The sessions of the page.
        next_page_token: Ask for the next page with this; empty at the end.
    """

    sessions: tuple[SessionSummary, ...]
    next_page_token: str


def session_query(flow_type: str, *, status: str | None, user: str | None) -> str:
    """Build the server's query for the sessions of an agent.

    Raises:
        ConfigurationError: A value cannot stand in a query.
    """
    conditions = [("FlowType", flow_type)]
    if status is not None:
        conditions.append((STATUS.name, status))
    if user is not None:
        conditions.append((USER.name, user))
    return " AND ".join(f"{name} = {_quoted(value)}" for name, value in conditions)


def summary_of(entry: SearchFlowEntry) -> SessionSummary:
    """Read a search result."""

    def text(name: str) -> str:
        value = entry.indexed_attributes.get(name)
        return value.data if value is not None and isinstance(value.data, str) else ""

    return SessionSummary(
        session_id=entry.flow_id,
        lifecycle=lifecycle_of(entry.status),
        status="purged" if entry.status is FlowStatus.COMPLETED else text(STATUS.name),
        title=text(TITLE.name),
        user=text(USER.name),
        started_at=entry.started_at,
    )


def _quoted(value: str) -> str:
    # The query language has no portable escape, but takes either kind of quote.
    quote = '"' if "'" in value else "'"
    if quote in value or "\\" in value or not value.isprintable():
        raise ConfigurationError(
            f"{value[:80]!r} cannot be searched for: a value must be printable, without backslashes, and must not have "
            "both kinds of quotes"
        )
    return f"{quote}{value}{quote}"


def as_it_ended(snapshot: AgentSnapshot, lifecycle: Lifecycle) -> AgentSnapshot:
    """Return the snapshot with what only the server knows: whether the session still runs."""
    if lifecycle == "running":
        return snapshot
    closed = tuple(
        interrupt.model_copy(update={"status": "closed"}) if interrupt.status == "pending" else interrupt
        for interrupt in snapshot.interrupts
    )
    return snapshot.model_copy(update={"lifecycle": lifecycle, "status": lifecycle, "interrupts": closed})
