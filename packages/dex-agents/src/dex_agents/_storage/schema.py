"""The durable state of a session Flow: its Attributes, Channels and their names.

The names are part of the contract: a running session is found by them for ever.
"""

from datetime import datetime
from typing import Final, TypeVar, cast

from dex import Attribute, AttributeIndex, AttributeMap, Channel, ChannelMap, CodecRegistry, Context, IndexType

from dex_agents import snapshot
from dex_agents._storage import attachment_documents as attachments
from dex_agents._storage import records as records
from dex_agents._storage.codec import document_codecs
from dex_agents._storage.fork_documents import (
    ForkRecord,
    ForkReply,
    HistoryEnd,
    HistoryPart,
    TurnEndPage,
    TurnEndRequest,
)
from dex_agents._storage.sealing import Sealing, StoredText
from dex_agents._stored import Stored
from dex_agents.events import AgentEvent
from dex_agents.messages import SavedMessage

ValueT = TypeVar("ValueT")

_KEYWORD: Final = AttributeIndex(IndexType.KEYWORD)

# For its users a text; the SDK finds the codec that seals it by this type.
_SEALED_TEXT: Final = cast("type[str]", StoredText)
_SEALED_BYTES: Final = cast("type[bytes]", attachments.AttachmentData)

SESSION: Final = Attribute("AgentSession", records.SessionRecord)
STATUS: Final = Attribute("AgentStatus", str, index=_KEYWORD)
SETTINGS: Final = Attribute("AgentSettings", snapshot.SessionSettings)
TITLE: Final = Attribute("AgentTitle", str, index=_KEYWORD)
USER: Final = Attribute("AgentUser", str, index=_KEYWORD)
CHANGED_AT: Final = Attribute("AgentChangedAt", datetime, index=AttributeIndex(IndexType.DATETIME))

MESSAGES: Final = AttributeMap("AgentMessages", SavedMessage)
MESSAGE_CHUNKS: Final = AttributeMap("AgentMessageChunks", records.MessageChunk)
MESSAGE_INDEX: Final = Attribute("AgentMessageIndex", records.MessageIndex)

# What is too large for a message, in pieces `<key>-<number>`, and the list of it. A session without attachments has no
# list.
ATTACHMENTS: Final = AttributeMap("AgentAttachments", _SEALED_BYTES)
ATTACHMENT_INDEX: Final = Attribute("AgentAttachmentIndex", attachments.AttachmentIndex)

RUN_STATE: Final = AttributeMap("FrameworkRunState", _SEALED_TEXT)
SUMMARIES: Final = AttributeMap("AgentSummaries", snapshot.ContextSummary)
TOOL_CALLS: Final = AttributeMap("AgentToolCalls", records.CallRecord)
UNSETTLED_CALLS: Final = AttributeMap("UnsettledToolCalls", records.CallRecord)
OUTCOME_REPORTS: Final = AttributeMap("AgentOutcomeReports", _SEALED_TEXT)
INTERRUPTS: Final = AttributeMap("AgentInterrupts", records.InterruptRecord)

# A client waits on these: first until its message has a turn, then until that turn has a result. A result is a
# `TurnResult` as text, since a client can wait for text and numbers only.
MESSAGE_TURNS: Final = AttributeMap("AgentMessageTurns", int)
# Of messages whose sender chose the id: what they said, so that an id is not taken for two messages.
MESSAGE_DIGESTS: Final = AttributeMap("AgentMessageDigests", _SEALED_TEXT)
FINISHED_TURNS: Final = Attribute("AgentFinishedTurns", int)
TURN_RESULTS: Final = AttributeMap("AgentTurnResults", _SEALED_TEXT)

# How the newest finished turns left the session, as text: what a fork begins with.
TURN_ENDS: Final = AttributeMap("AgentTurnEnds", _SEALED_TEXT)
TURN_PARTS: Final = AttributeMap("AgentTurnParts", _SEALED_TEXT)
FORK: Final = Attribute("AgentFork", ForkRecord)
FORK_ENDS: Final = Channel("AgentForkEnds", str)

USER_MESSAGES: Final = Channel("UserMessages", snapshot.UserMessage)

# What concerns the running turn: its token, and messages that steer it. One Channel for both, since SDK 1.23.0 can mix
# up the messages of two Channels that one Step or RPC loads.
TURN_MAIL: Final = Channel("TurnMail", records.TurnMail)

WAKE_UPS: Final = ChannelMap("InterruptWakeUps", str)
SETTLED_CALLS: Final = ChannelMap("SettledToolCalls", str)
RELEASED_CALLS: Final = ChannelMap("ReleasedToolCalls", str)

DEFINITIONS: Final = (
    SESSION,
    STATUS,
    SETTINGS,
    TITLE,
    USER,
    CHANGED_AT,
    MESSAGES,
    MESSAGE_CHUNKS,
    MESSAGE_INDEX,
    ATTACHMENTS,
    ATTACHMENT_INDEX,
    RUN_STATE,
    SUMMARIES,
    TOOL_CALLS,
    UNSETTLED_CALLS,
    OUTCOME_REPORTS,
    INTERRUPTS,
    MESSAGE_TURNS,
    MESSAGE_DIGESTS,
    FINISHED_TURNS,
    TURN_RESULTS,
    TURN_ENDS,
    TURN_PARTS,
    FORK,
    FORK_ENDS,
    USER_MESSAGES,
    TURN_MAIL,
    WAKE_UPS,
    SETTLED_CALLS,
    RELEASED_CALLS,
)


LATEST_SUMMARY: Final = "latest"
"""The instance of `SUMMARIES` that holds now; `kept_summaries` names those of earlier turns."""


def batch_channel(batch: int) -> str:
    """Return the instance of `SETTLED_CALLS` on which the settlements of a batch arrive."""
    return f"batch-{batch}"


def find_instance(context: Context, definition: AttributeMap[ValueT], instance: str) -> ValueT | None:
    """Return a map instance, or None when it does not exist.

    The SDK does return None (0 for an int) then, but its signature promises a value.
    """
    return definition.get(context, instance)


def find(context: Context, definition: Attribute[ValueT]) -> ValueT | None:
    """Return an Attribute, or None when it was never set (0 for an int)."""
    return definition.get(context)


_READABLE: Final[frozenset[type[Stored]]] = frozenset(
    {
        records.MessageIndex,
        # A Worker that lacks a key must still be able to read which Step it is to hand back.
        records.RunModelInput,
        records.CallInput,
        records.AwaitStartInput,
        records.AwaitApprovalInput,
        records.ResumeInput,
        snapshot.MessagePageRequest,
        snapshot.SendReceipt,
        snapshot.TurnResultRequest,
    }
)
"""Documents that hold ids and numbers only; every other one is sealed when the application gives a codec."""


DOCUMENTS: Final[tuple[type[Stored], ...]] = (
    AgentEvent,
    SavedMessage,
    ForkRecord,
    ForkReply,
    HistoryEnd,
    HistoryPart,
    TurnEndPage,
    TurnEndRequest,
    attachments.AttachmentIndex,
    attachments.AttachmentOffer,
    attachments.AttachmentProgress,
    attachments.AttachmentPieces,
    attachments.AttachmentRequest,
    attachments.AttachmentContent,
    records.SessionRecord,
    records.CallRecord,
    records.InterruptRecord,
    records.MessageChunk,
    records.MessageIndex,
    records.RunModelInput,
    records.CallInput,
    records.AwaitStartInput,
    records.AwaitApprovalInput,
    records.ResumeInput,
    records.CancellationInput,
    records.PartialText,
    records.TurnMail,
    records.PurgeInput,
    snapshot.AgentSnapshot,
    snapshot.ContextSummary,
    snapshot.InterruptAnswer,
    snapshot.MessagePage,
    snapshot.OutcomeReport,
    snapshot.MessagePageRequest,
    snapshot.SendReceipt,
    snapshot.SessionSettings,
    snapshot.SessionStart,
    snapshot.SettingsUpdate,
    snapshot.TurnCancellation,
    snapshot.TurnResult,
    snapshot.TurnResultReply,
    snapshot.TurnResultRequest,
    snapshot.UserMessage,
)
"""Everything that session Flows store, take and return, beside texts and numbers."""

_KEPT: Final[frozenset[type[Stored]]] = frozenset(
    {
        attachments.AttachmentIndex,
        records.MessageChunk,
        records.MessageIndex,
        records.SessionRecord,
        SavedMessage,
        snapshot.UserMessage,
    }
)
"""Documents of which a long session has many, or writes one often: they are compressed."""


def session_codecs(sealing: Sealing) -> CodecRegistry:
    """Return codecs for everything that session Flows store, take and return."""
    return document_codecs(sealing, _READABLE, _KEPT, *DOCUMENTS)
