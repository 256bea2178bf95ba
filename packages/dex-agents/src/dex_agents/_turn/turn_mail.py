"""The Channel of the running turn: its token, and the messages that steer it."""

from collections.abc import Sequence

from dex import ChannelMessage, Context

from dex_agents._storage.message_log import MessageLog
from dex_agents._storage.records import TurnMail
from dex_agents._storage.schema import MESSAGE_TURNS, TURN_MAIL
from dex_agents._storage.session_editor import SessionEditor
from dex_agents.messages import Message
from dex_agents.options import AgentSessionOptions
from dex_agents.snapshot import UserMessage


def begin_mail(context: Context, turn_id: str) -> None:
    """Stage the token of a turn that begins."""
    TURN_MAIL.publish(context, TurnMail(token_of=turn_id))


def has_token(context: Context, turn_id: str) -> bool:
    """Whether the turn runs; needs the Channel loaded."""
    return any(mail.value.token_of == turn_id for mail in TURN_MAIL.pending_messages(context))


def take_token(context: Context, turn_id: str) -> None:
    """Stage that the turn ends here; needs the Channel loaded.

    A transactional RPC that has taken the token is refused when the turn has ended meanwhile; a Step whose turn was
    cancelled meanwhile is cancelled with it.
    """
    for mail in TURN_MAIL.pending_messages(context):
        if mail.value.token_of == turn_id:
            TURN_MAIL.delete(context, mail.message_id)


class Steering:
    """The user messages that one model call is offered, each taken once; needs the Channel loaded."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._waiting: Sequence[tuple[ChannelMessage[TurnMail], UserMessage]] = [
            (mail, mail.value.steering)
            for mail in TURN_MAIL.pending_messages(context)
            if mail.value.steering is not None
        ]

    @property
    def offered(self) -> tuple[Message, ...]:
        """The messages, oldest first."""
        return tuple(Message(role="user", blocks=message.content) for _, message in self._waiting)

    def take(self, count: int, session: SessionEditor, log: MessageLog, options: AgentSessionOptions) -> None:
        """Stage that the model has seen the first `count` messages: they are in the log now, and wait no more."""
        turn = session.turn
        for mail, message in self._waiting[:count]:
            TURN_MAIL.delete(self._context, mail.message_id)
            MESSAGE_TURNS.set(self._context, message.message_id, turn.number)
            log.append(session, turn.turn_id, [Message(role="user", blocks=message.content)], options)
