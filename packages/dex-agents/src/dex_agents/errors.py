"""The errors of dex-agents, as a tree.

```
DexAgentsError
├── ConfigurationError            the program is wrong: fix the code or the command
│   └── InvalidSessionIdError     the id has a character that a Dex Server refuses
├── SessionError                  about one session; has `session_id`
│   ├── SessionNotFoundError      no such session: start it, or check the id
│   ├── SessionStoppedError       it was stopped: readable, but takes nothing more; start a new one
│   ├── SessionFailedError        it died: read why, start a new one
│   ├── SessionAlreadyExistsError the id is taken by another agent: choose another
│   ├── BlankMessageError         the message has no content: send some
│   ├── MessageTooLargeError      over 16 MiB, or 512 KiB without large media: send a reference to what is large
│   ├── AttachmentNotKeptError    the session does not keep that attachment: send its content in a new message
│   ├── AnswerTooLargeError       the answer to an interrupt is too large: give a reference to what is large
│   ├── AnswerNotValidError       the answer does not match what was asked: correct it, nothing was used up
│   ├── MessageIdReusedError      the id belongs to another message: give each message its own
│   ├── SessionBudgetUsedUpError  the session's budget is used up: raise it, or start another session
│   ├── SessionFullError          it keeps as much as a server allows: fork an earlier turn, or start another session
│   ├── MessageQueueFullError     too many messages wait: let the session catch up
│   ├── TurnResultNotKeptError    an old message was asked again: read its turn's messages
│   ├── TurnNotForkableError      the end of that turn is not kept: choose one that the text names
│   ├── InterruptNotPendingError  unknown, answered or expired: reload the snapshot
│   ├── OutcomeNotUnknownError    the call's outcome is not unknown (any more): reload the snapshot
│   ├── PurgeNotPossibleError     the session has ended: its server deletes it when its retention is over
│   ├── SessionBusyError          a Step held the lock for 5 s: repeat
│   ├── AnswerTimeoutError        `ask` waited long enough: ask again with the same `message_id` to wait on
│   └── TurnFailedError           a turn ended without an answer (also raised by runners: another attempt cannot help)
│       └── BudgetUsedUpError     the turn reached a limit of its or its session's budget
├── WorkerRaisedError             a Worker's code raised while it served a call; has `error_type` and `detail`
├── NoWorkerAvailableError        no Worker serves this agent: start one, then repeat; nothing was lost
├── EngineUnavailableError        the server does not answer at its address: start it, or correct the address
├── EngineStartError              the embedded engine cannot start; has `reason`
├── StateNotReadableError         (raised by runners) the stored state was written by another version
├── EncryptionKeyError            a value needs another key: give this process, or the Worker, the key `key_id`
├── AttemptFailedError            (seen in a Step's history) one attempt of a model or tool call raised
├── NotInSessionError             a tool asked its session where there is none
├── ToolPaused                    (raised inside tools) the tool waits for an answer or a time: let it pass
└── ToolDidNotHappen              (raised by tools) the write provably did not happen: recorded as failed
    └── QuestionNotAnsweredError  (raised inside tools) nobody answered before the deadline
```
"""

from typing import Literal


class DexAgentsError(Exception):
    """Root of all errors that dex-agents raises."""


class ConfigurationError(DexAgentsError):
    """The program or the command is wrong; the text says what to change."""


class InvalidSessionIdError(ConfigurationError, ValueError):
    """A session id is empty, too long, or has a character that a Dex Server refuses."""


class SessionError(DexAgentsError):
    """Something about one session.

    Attributes:
        session_id: The session concerned.
    """

    def __init__(self, message: str, *, session_id: str) -> None:
        super().__init__(message)
        self.session_id = session_id


class SessionNotFoundError(SessionError):
    """There is no session with this id. Start it, or check the id and the server's address."""


class SessionStoppedError(SessionError):
    """The session was stopped. It can be read until its retention ends; start a new one to go on.

    Attributes:
        reason: What `stop_session` was given; empty when nothing was, or when the server does not tell.
    """

    def __init__(self, message: str, *, session_id: str, reason: str = "") -> None:
        super().__init__(message, session_id=session_id)
        self.reason = reason


class SessionFailedError(SessionError):
    """The session's Flow failed. It can be read until its retention ends; start a new one to go on."""


class SessionAlreadyExistsError(SessionError):
    """The id belongs to a session of another agent. Choose another id."""


class BlankMessageError(SessionError, ValueError):
    """A user message has no content. Nothing was sent."""


class MessageTooLargeError(SessionError, ValueError):
    """A user message is larger than a session takes. Nothing was sent; store what is large and send a reference."""


class AttachmentNotKeptError(SessionError):
    """A session does not keep an attachment, or not all of it.

    Send the content itself, in a message with an id of its own. While a content was being brought: repeat the call.
    """


class AnswerTooLargeError(SessionError):
    """An answer is larger than its call may record. Nothing changed; give a reference to what is large."""


class AnswerNotValidError(SessionError):
    """An answer, or edited arguments, do not match what was asked for. Nothing was used up: correct it and repeat."""


class MessageIdReusedError(SessionError, ValueError):
    """The id belongs to a message with another content. Nothing was sent; give each message an id of its own."""


class SessionBudgetUsedUpError(SessionError):
    """The session's budget is used up, so it begins no turn. Nothing was sent. Raise the budget, or start another."""


class SessionFullError(SessionError):
    """The session keeps about as much as a server lets one run have, so it begins no turn. Nothing was sent.

    Carry it over: see the guide `docs/full-sessions.md`.
    """


class MessageQueueFullError(SessionError):
    """Too many user messages wait for their turn. Nothing was sent; repeat when the session has caught up."""


class PurgeNotPossibleError(SessionError):
    """A session that has ended cannot be purged over the protocol. Purge sessions instead of stopping them."""


class SessionBusyError(SessionError):
    """A Step held the lock of what was asked for during the whole time. Nothing changed; repeat."""


class AnswerTimeoutError(SessionError, TimeoutError):
    """`ask` waited for its whole timeout. A message that was sent is not lost, and its turn goes on.

    Attributes:
        message_id: Ask again with it, and the same content, to wait for the same answer.
    """

    def __init__(self, message: str, *, session_id: str, message_id: str) -> None:
        super().__init__(message, session_id=session_id)
        self.message_id = message_id


class TurnResultNotKeptError(SessionError):
    """The turn finished so long ago that its result is forgotten. Its messages are still in the log."""


class TurnNotForkableError(SessionError):
    """A session cannot be forked at that turn: it has not finished, or how it ended is not kept any more.

    Attributes:
        forkable: The turns that can be forked, oldest first, for example `turn-7`.
    """

    def __init__(self, message: str, *, session_id: str, forkable: tuple[str, ...]) -> None:
        super().__init__(message, session_id=session_id)
        self.forkable = forkable


class OutcomeNotUnknownError(SessionError):
    """Somebody settles a call whose outcome is not unknown (any more). Reload the snapshot.

    Attributes:
        call_id: The call.
    """

    def __init__(self, message: str, *, session_id: str, call_id: str) -> None:
        super().__init__(message, session_id=session_id)
        self.call_id = call_id


class InterruptNotPendingError(SessionError):
    """An approval, question or external call waits for no answer (any more). Reload the snapshot.

    Attributes:
        interrupt_id: The id that was answered.
        reason: `unknown`, `answered` or `expired`.
    """

    def __init__(
        self, message: str, *, session_id: str, interrupt_id: str, reason: Literal["unknown", "answered", "expired"]
    ) -> None:
        super().__init__(message, session_id=session_id)
        self.interrupt_id = interrupt_id
        self.reason = reason


class TurnFailedError(DexAgentsError):
    """A turn ended without an answer.

    A runner raises it from `run_model` or `compact` when another attempt cannot help (a usage limit, an output that the
    framework refuses for good). A client gets it from `ask`.
    """


class BudgetUsedUpError(TurnFailedError):
    """A turn ended because a budget is used up. The text names the budget, its limit, what was used, and the remedy."""


class WorkerRaisedError(DexAgentsError):
    """The Worker's code raised while it served a call; nothing changed. Read the detail, and the Worker's log.

    Attributes:
        error_type: The qualified name of what it raised.
        detail: What it said.
    """

    def __init__(self, *, error_type: str, detail: str) -> None:
        super().__init__(f"the Worker could not serve the call: {error_type or 'error'}: {detail}")
        self.error_type = error_type
        self.detail = detail


class NoWorkerAvailableError(DexAgentsError):
    """No Worker serves this agent right now, or its Worker died during the call. Start one and repeat the call.

    Nothing was lost, and nothing changed.

    Attributes:
        agent: The agent's name; empty when it is not known.
        session_id: The session that was called; empty when none was.
        address: The server at which a Worker is missing; empty when it is not known.
    """

    def __init__(self, message: str, *, agent: str = "", session_id: str = "", address: str = "") -> None:
        super().__init__(message)
        self.agent = agent
        self.session_id = session_id
        self.address = address


class EngineUnavailableError(DexAgentsError):
    """The server does not answer. Start it, or correct its address; nothing was lost."""


class EngineStartError(DexAgentsError):
    """The embedded engine cannot start.

    Attributes:
        reason: `in_use`, `unreadable`, `newer`, `not_writable`, `address_in_use`, `address_denied`,
            `address_not_available`, `address_not_allowed`, `host_unknown`, or another word of the engine.
    """

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class StateNotReadableError(DexAgentsError):
    """A runner cannot read the stored framework state.

    Attributes:
        newer_writer: True when a newer version wrote it, so that another Worker may be able to read it.
    """

    def __init__(self, message: str, *, newer_writer: bool) -> None:
        super().__init__(message)
        self.newer_writer = newer_writer


class ToolDidNotHappen(DexAgentsError):  # noqa: N818  the name is part of the contract with tools
    """Raised by a tool to say that its write provably did not happen.

    The call is recorded as `failed` instead of `outcome_unknown`, and the model may call the tool again.
    """


class QuestionNotAnsweredError(ToolDidNotHappen):
    """Nobody answered a tool's question before its deadline. A tool that lets it pass is recorded as `failed`."""


class NotInSessionError(DexAgentsError):
    """A tool asked its session for something, but no session runs it. Run the agent as a session."""


class ToolPaused(DexAgentsError):  # noqa: N818  it ends a run, and nothing went wrong
    """Ends this run of a tool that waits for an answer or a time; its session runs it again. Let it pass."""


class EncryptionKeyError(DexAgentsError):
    """A value was encrypted with a key that this process, or the Worker that it called, lacks. Nothing is lost.

    Give the key to the one that the text names. The text ends in `[key_id=...]`, by which a client knows the error of a
    Worker again.

    Attributes:
        key_id: The key's id.
    """

    def __init__(self, message: str, *, key_id: str) -> None:
        super().__init__(f"{message} [key_id={key_id}]")
        self.key_id = key_id


class AttemptFailedError(DexAgentsError):
    """One attempt of a model or tool call raised; the Step's policy decides whether there is another.

    The text has the original error's type and message. Steps raise it, so that it stands in the Flow's history and in
    the note that the model gets.
    """
