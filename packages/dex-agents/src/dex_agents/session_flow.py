"""AgentSessionFlow: a durable agent session, one Flow run a session.

| Step | what it does |
|---|---|
| AwaitUserMessage | waits for the next user message and saves it |
| RunModel | one model call, its response recorded |
| CallTool | one read or idempotent write |
| CallSingleAttemptTool | one other write |
| ReconcileToolCall | asks what became of a write whose outcome is unknown, where the tool can tell |
| AwaitToolApproval | waits for people, or for the deadline |
| AwaitToolStart | waits for the calls that a call must follow, or for a time |
| ResumeTurn | waits for all results of one model response |
| CompactContext | folds older messages into one summary, with one model call |
| RecordTurnFailure, RecordToolFailure, RecordToolOutcomeUnknown | failure routes |
| AwaitPartialText | waits for what a cancelled model call had said |
| RecordTurnCancellation | ends a turn that was cancelled |
| PurgeSession, PurgeWaitingMessage | delete what a session keeps, and end it |
| ReconcileUnsettledCall | after a cancelled turn: asks what became of a write that it cut off |
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from dex import Context, Flow, PersistenceSchema, RPCResult, StepList, Stream, rpc

from dex_agents._names import check_flow_name
from dex_agents._storage import schema
from dex_agents._storage.attachment_documents import (
    AttachmentContent,
    AttachmentOffer,
    AttachmentPieces,
    AttachmentProgress,
    AttachmentRequest,
)
from dex_agents._storage.fork_documents import ForkReply, HistoryEnd, HistoryPart, TurnEndPage, TurnEndRequest
from dex_agents._storage.records import PartialText
from dex_agents._turn.attachment_reader import AttachmentReader
from dex_agents._turn.attachments import note_damaged, offer, read_pieces, receive_pieces
from dex_agents._turn.forking import read_end, receive_end, receive_part
from dex_agents._turn.interrupts import take_answer
from dex_agents._turn.mailbox import examine_offer, receive, receive_steering
from dex_agents._turn.outcome_reports import take_report
from dex_agents._turn.partial_text import PartialTexts, take_partial_text
from dex_agents._turn.redaction import EventFeed, redacted_page, redacted_snapshot
from dex_agents._turn.services import SessionServices
from dex_agents._turn.session_view import page_of, snapshot_of
from dex_agents._turn.settings import change_settings
from dex_agents._turn.turn_mail import has_token, take_token
from dex_agents.checks import check, check_callables, check_instance, check_mappings
from dex_agents.errors import ConfigurationError
from dex_agents.events import EVENT_STREAM_NAME, AgentEvent
from dex_agents.options import AgentSessionOptions
from dex_agents.reconciliation import Reconcilers
from dex_agents.runner import AgentFrameworkRunner, KnownTool
from dex_agents.settings import SettingsResolver
from dex_agents.snapshot import (
    AgentSnapshot,
    InterruptAnswer,
    MessagePage,
    MessagePageRequest,
    OutcomeReport,
    SendReceipt,
    SessionSettings,
    SessionStart,
    SessionStatus,
    SettingsUpdate,
    TurnCancellation,
    TurnResult,
    TurnResultReply,
    TurnResultRequest,
    UserMessage,
)
from dex_agents.steps._moves import to_await_partial_text, to_purge_session, to_record_turn_cancellation
from dex_agents.steps.await_partial_text import AwaitPartialText
from dex_agents.steps.await_tool_approval import AwaitToolApproval
from dex_agents.steps.await_tool_start import AwaitToolStart
from dex_agents.steps.await_user_message import AwaitUserMessage
from dex_agents.steps.call_single_attempt_tool import CallSingleAttemptTool
from dex_agents.steps.call_tool import CallTool
from dex_agents.steps.compact_context import CompactContext
from dex_agents.steps.purge_session import PurgeSession, PurgeWaitingMessage
from dex_agents.steps.reconcile_tool_call import ReconcileToolCall
from dex_agents.steps.reconcile_unsettled_call import ReconcileUnsettledCall
from dex_agents.steps.record_tool_failure import RecordToolFailure
from dex_agents.steps.record_tool_outcome_unknown import RecordToolOutcomeUnknown
from dex_agents.steps.record_turn_cancellation import RecordTurnCancellation
from dex_agents.steps.record_turn_failure import RecordTurnFailure
from dex_agents.steps.resume_turn import ResumeTurn
from dex_agents.steps.run_model import RunModel

RPC_TIMEOUT: Final = timedelta(seconds=15)
"""A call without a Worker fails within this time; nothing is lost by it."""

CANCELLED_WITH_THEIR_TURN: Final = (
    RunModel,
    CallTool,
    CallSingleAttemptTool,
    ReconcileToolCall,
    AwaitToolApproval,
    AwaitToolStart,
    ResumeTurn,
    CompactContext,
    RecordTurnFailure,
    RecordToolFailure,
    RecordToolOutcomeUnknown,
)

CANCELLED_BY_A_PURGE: Final = (
    *CANCELLED_WITH_THEIR_TURN,
    RecordTurnCancellation,
    ReconcileUnsettledCall,
    AwaitPartialText,
    AwaitUserMessage,
)

DEFAULT_OPTIONS: Final = AgentSessionOptions()


class AgentSessionFlow(Flow[SessionStart]):
    """The session Flow of one agent.

    Build it in every process that serves the agent's sessions or calls them. Its name is found by running sessions and
    must stay the same for ever.

    Attributes:
        name: The Flow type.
        runner: The agent.
        options: The application's choices.
        reconcilers: By tool name.
        events: The Stream of AgentEvents.
        partial_texts: Connected by the host that serves the agent.
        attachments: Connected by the host too; Steps of sessions with attachments fail without.
    """

    def __init__(
        self,
        runner: AgentFrameworkRunner,
        *,
        name: str,
        options: AgentSessionOptions = DEFAULT_OPTIONS,
        reconcilers: Reconcilers | None = None,
        settings_resolver: SettingsResolver | None = None,
    ) -> None:
        """Build the Flow.

        Args:
            runner: The adapter that runs the agent.
            name: The Flow type: not empty, and without `/`, `$` and `:`.
            options: The application's choices.
            reconcilers: Find out, by the tool's name, what became of a call whose outcome is unknown.
            settings_resolver: Makes a model, instructions and a reasoning effort of a session's settings.

        Raises:
            ConfigurationError: The name has a character that a Dex Server refuses, an argument is not of its type, or
                the options ask for a compaction that the runner does not support.
        """
        fits = callable(getattr(runner, "run_model", None))
        check("runner", runner, fits, "give a runner, or build the Flow by `session_flow(agent)` of your adapter")
        check_instance("options", options, AgentSessionOptions, "give AgentSessionOptions")
        check_mappings(reconcilers=reconcilers)
        for tool, reconciler in (reconcilers or {}).items():
            check(f"reconcilers[{tool!r}]", reconciler, callable(reconciler), "give a function")
        check_callables(settings_resolver=settings_resolver)
        if options.compaction is not None and not runner.describe().supports_compaction:
            raise ConfigurationError(
                f"compaction is {options.compaction}, but the runner of {runner.describe().framework!r} cannot compact "
                "histories: leave the option out"
            )
        self.name = check_flow_name(name)
        self.runner = runner
        self.options = options
        self.reconcilers = reconcilers or {}
        self.events = Stream(EVENT_STREAM_NAME, AgentEvent, options.event_stream_capacity_bytes)
        self.partial_texts = PartialTexts()
        self.attachments = AttachmentReader()
        self._services = SessionServices(
            runner,
            options,
            EventFeed(self.events, options, agent=name),
            agent=name,
            reconcilers=self.reconcilers,
            settings_resolver=settings_resolver,
            partial_texts=self.partial_texts,
            attachments=self.attachments,
        )

    def get_flow_type(self) -> str:
        """Return the name."""
        return self.name

    def get_steps(self) -> StepList[SessionStart]:
        """Return the Steps of a session."""
        start = StepList[SessionStart].start_step(AwaitUserMessage(self._services))
        return start.other_steps(
            RunModel(self._services),
            CallTool(self._services),
            CallSingleAttemptTool(self._services),
            ReconcileToolCall(self._services),
            AwaitToolApproval(self._services),
            AwaitToolStart(self._services),
            ResumeTurn(self._services),
            CompactContext(self._services),
            RecordTurnFailure(self._services),
            RecordToolFailure(self._services),
            RecordToolOutcomeUnknown(self._services),
            AwaitPartialText(self._services),
            RecordTurnCancellation(self._services),
            ReconcileUnsettledCall(self._services),
            PurgeSession(self._services),
            PurgeWaitingMessage(self._services),
        )

    def get_persistence_schema(self) -> PersistenceSchema:
        """Return the durable state of a session."""
        return PersistenceSchema.of(*schema.DEFINITIONS, self.events)

    @rpc(timeout=RPC_TIMEOUT, is_transactional=True)
    def send_user_message(self, context: Context, message: UserMessage) -> RPCResult[SendReceipt]:
        """Queue a user message; the caller locks and loads `AgentMessageTurns/<message id>`."""
        return RPCResult(receive(context, message, self.options))

    @rpc(timeout=RPC_TIMEOUT, lock_attributes=(schema.ATTACHMENT_INDEX.lock(),))
    def offer_attachments(self, context: Context, offered: AttachmentOffer) -> RPCResult[AttachmentProgress]:
        """Say which contents a message will need; returns which of them are there, and how much of each.

        The caller loads `AgentMessageTurns/<message id>`, and that id's digest.
        """
        receipt = examine_offer(context, offered, self.options)
        progress = AttachmentProgress(receipt=receipt) if receipt else offer(context, offered, self.options)
        return RPCResult(progress)

    @rpc(timeout=RPC_TIMEOUT, lock_attributes=(schema.ATTACHMENT_INDEX.lock(),))
    def receive_attachment_pieces(self, context: Context, brought: AttachmentPieces) -> RPCResult[int]:
        """Take the next pieces of a content; returns how many are there now, the same ones counted once."""
        return RPCResult(receive_pieces(context, brought, self.options))

    @rpc(timeout=RPC_TIMEOUT, lock_attributes=(schema.ATTACHMENT_INDEX.lock(),))
    def report_damaged_attachments(self, context: Context, found: AttachmentOffer) -> RPCResult[AttachmentProgress]:
        """Say that contents are not what they were offered as: the next message that has them brings them anew.

        Returns what else the session keeps with the same digests.
        """
        return RPCResult(note_damaged(context, found.attachments))

    @rpc(timeout=RPC_TIMEOUT)
    def read_attachment(self, context: Context, request: AttachmentRequest) -> RPCResult[AttachmentContent]:
        """Return pieces of a content; the caller loads `AgentAttachments/<key>-<number>` of each."""
        return RPCResult(read_pieces(context, request))

    @rpc(
        timeout=RPC_TIMEOUT,
        is_transactional=True,
        load_channels=(schema.TURN_MAIL,),
        lock_attributes=(schema.FINISHED_TURNS.lock(),),
    )
    def steer_user_message(self, context: Context, message: UserMessage) -> RPCResult[SendReceipt]:
        """Send a message to the running turn's model; locks and loads as in `send_user_message`.

        It is offered with the turn's next model call. When the turn ends first, it starts the next one.
        """
        return RPCResult(receive_steering(context, message, self.options))

    @rpc(
        timeout=RPC_TIMEOUT,
        is_transactional=True,
        load_channels=(schema.TURN_MAIL,),
        lock_attributes=(schema.FINISHED_TURNS.lock(),),
    )
    def cancel_turn(self, context: Context, cancellation: TurnCancellation) -> RPCResult[bool]:
        """End the running turn; with a message, begin the next one with it. Locks and loads that message's id.

        Returns false when the turn does not run. A turn that ends at this very moment makes the call fail with
        `ChannelMessageNotFoundError`; nothing is changed then.
        """
        session = schema.find(context, schema.SESSION)
        turn = session.turn if session else None
        if turn is None or turn.turn_id != cancellation.turn_id or not has_token(context, turn.turn_id):
            return RPCResult(False)
        if cancellation.message is not None:
            receipt = receive_steering(context, cancellation.message, self.options, ends_turn=True)
            if not receipt.accepted:
                raise ValueError(f"the message was refused: {receipt.refusal}")
            if receipt.repeated:
                # It has interrupted a turn before: the one that runs now may be its own.
                return RPCResult(True)
        take_token(context, turn.turn_id)
        speaks = schema.find(context, schema.STATUS) == SessionStatus.RUNNING_MODEL
        move = to_await_partial_text if speaks else to_record_turn_cancellation
        next_steps = (move(turn, cancellation.reason),)
        return RPCResult(True, next_steps).with_canceling_steps(*CANCELLED_WITH_THEIR_TURN)

    @rpc(timeout=RPC_TIMEOUT, is_transactional=True, load_channels=(schema.TURN_MAIL,))
    def keep_partial_text(self, context: Context, partial: PartialText) -> RPCResult[bool]:
        """Take what a cancelled model call had said, from the Worker that ran it; false when its turn goes on."""
        return RPCResult(take_partial_text(context, partial, self._services.sealing))

    @rpc(timeout=RPC_TIMEOUT, is_transactional=True)
    def purge_session(self, context: Context) -> RPCResult[bool]:
        """Delete what the session keeps, whatever it does now, and end it."""
        del context
        return RPCResult(True, (to_purge_session(),)).with_canceling_steps(*CANCELLED_BY_A_PURGE)

    @rpc(timeout=RPC_TIMEOUT, lock_attributes=(schema.SETTINGS.lock(),))
    def update_session_settings(self, context: Context, update: SettingsUpdate) -> RPCResult[SessionSettings]:
        """Change settings, from the next turn on; returns all of them."""
        return RPCResult(change_settings(context, update))

    @rpc(timeout=RPC_TIMEOUT, is_transactional=True)
    def resolve_interrupt(self, context: Context, answer: InterruptAnswer) -> RPCResult[bool]:
        """Approve or deny; the caller locks and loads `AgentInterrupts/<interrupt id>`.

        Returns false for an unknown, answered or expired interrupt.
        """
        if answer.approved is None:
            raise ValueError("resolve_interrupt needs `approved`: true or false")
        return RPCResult(take_answer(context, answer, "approval", self._known_tools))

    @rpc(timeout=RPC_TIMEOUT, is_transactional=True)
    def answer_question(self, context: Context, answer: InterruptAnswer) -> RPCResult[bool]:
        """Answer what a tool or the agent asked; locks, loads and result as in `resolve_interrupt`."""
        return RPCResult(take_answer(context, answer, "answer", self._known_tools))

    @rpc(timeout=RPC_TIMEOUT, is_transactional=True)
    def provide_tool_result(self, context: Context, answer: InterruptAnswer) -> RPCResult[bool]:
        """Give the result of a call that is answered from outside; as in `resolve_interrupt`."""
        return RPCResult(take_answer(context, answer, "external_result", self._known_tools))

    @rpc(timeout=RPC_TIMEOUT, is_transactional=True)
    def resolve_unknown_outcome(self, context: Context, report: OutcomeReport) -> RPCResult[bool]:
        """Settle a call whose outcome was unknown; the caller locks and loads `UnsettledToolCalls/<call id>`.

        Returns false when its outcome is not unknown (any more).
        """
        return RPCResult(take_report(context, report))

    @rpc(
        timeout=RPC_TIMEOUT,
        load_attribute_maps=(
            schema.MESSAGES,
            schema.TOOL_CALLS,
            schema.UNSETTLED_CALLS,
            schema.INTERRUPTS,
        ),
        load_attribute_map_instances=(schema.SUMMARIES.load(schema.LATEST_SUMMARY),),
    )
    def get_agent_snapshot(self, context: Context) -> RPCResult[AgentSnapshot]:
        """Return the session in one look; works on a stopped session until its retention ends."""
        return RPCResult(redacted_snapshot(snapshot_of(context), self.options))

    @rpc(timeout=RPC_TIMEOUT, load_attribute_maps=(schema.MESSAGES,))
    def list_agent_messages(self, context: Context, request: MessagePageRequest) -> RPCResult[MessagePage]:
        """Return a page of the log; when it names a `missing_chunk`, repeat the call with that chunk loaded."""
        return RPCResult(redacted_page(page_of(context, request), self.options))

    @rpc(timeout=RPC_TIMEOUT, load_attribute_maps=(schema.MESSAGES,))
    def read_history(self, context: Context, request: MessagePageRequest) -> RPCResult[MessagePage]:
        """Return a page of the log for a fork, which is not for people to see: as it is stored, without redaction."""
        return RPCResult(page_of(context, request))

    @rpc(
        timeout=RPC_TIMEOUT,
        load_attribute_maps=(schema.RUN_STATE, schema.TURN_ENDS, schema.TURN_PARTS, schema.SUMMARIES),
    )
    def read_turn_end(self, context: Context, request: TurnEndRequest) -> RPCResult[TurnEndPage]:
        """Return a finished turn and a piece of the framework state that it left, for a fork."""
        return RPCResult(read_end(context, request))

    @rpc(timeout=RPC_TIMEOUT)
    def get_fork(self, context: Context) -> RPCResult[ForkReply]:
        """Return where a forked session comes from."""
        return RPCResult(ForkReply(fork=schema.find(context, schema.FORK)))

    @rpc(timeout=RPC_TIMEOUT, lock_attributes=(schema.FORK.lock(), schema.ATTACHMENT_INDEX.lock()))
    def receive_history(self, context: Context, part: HistoryPart) -> RPCResult[bool]:
        """Take a piece of what a fork begins with; false when it has everything."""
        return RPCResult(receive_part(context, part))

    @rpc(timeout=RPC_TIMEOUT, lock_attributes=(schema.FORK.lock(),))
    def finish_fork(self, context: Context, end: HistoryEnd) -> RPCResult[bool]:
        """Open a fork that has received everything; false when it had been finished before."""
        return RPCResult(receive_end(context, end))

    @rpc(timeout=RPC_TIMEOUT)
    def get_turn_result(self, context: Context, request: TurnResultRequest) -> RPCResult[TurnResultReply]:
        """Return how a turn ended; the caller loads `AgentTurnResults/<turn id>`, and the message's turn if it asks."""
        stored = schema.find_instance(context, schema.TURN_RESULTS, request.turn_id)
        result = TurnResult.model_validate_json(stored) if stored else None
        turn = schema.find_instance(context, schema.MESSAGE_TURNS, request.message_id) if request.message_id else 0
        return RPCResult(TurnResultReply(result=result, message_turn=max(turn or 0, 0)))

    def _known_tools(self) -> Sequence[KnownTool]:
        return self.runner.describe().tools
