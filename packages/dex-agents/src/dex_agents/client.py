"""The client of an agent's sessions: start, send, ask, watch, approve, stop."""

from dex_agents._client.session_id import check_session_id
from dex_agents._client.verbs.asking import AskingVerbs
from dex_agents._client.verbs.interrupts import InterruptVerbs
from dex_agents._client.verbs.sessions import SessionVerbs
from dex_agents._client.verbs.turns import TurnVerbs
from dex_agents.session import AgentSession


class AgentSessionClient(SessionVerbs, AskingVerbs, TurnVerbs, InterruptVerbs):
    """Calls the sessions of one agent. Use it inside `async with`; it may be shared by many tasks.

    Every call raises `EngineUnavailableError` when no server answers, and those that a Worker serves (all but
    `start_session`, `stop_session`, `events` and `list_sessions`) raise `NoWorkerAvailableError` within 20 s when no
    Worker of the agent runs. Neither loses anything: repeat the call. A call whose Worker dies while it serves it has
    changed nothing and is repeated for 5 s.

    Args:
        flow: The agent's session Flow, built as in the Worker.
        address: `host:port` of the Dex Server; None takes `DEX_SERVER_ADDRESS`, else 127.0.0.1:8801.
        credential: Supplies the bearer token of each call; None sends none.
        connection: An open connection that the client shares and does not close; `address` and `credential` are not
            used then. `AgentHost` passes its own.

    Raises:
        ConfigurationError: The address is not one.
    """

    def session(self, session_id: str) -> AgentSession:
        """Return a handle of one session, which need not exist yet.

        Raises:
            InvalidSessionIdError: The id cannot be one.
        """
        return AgentSession(self, check_session_id(session_id))
