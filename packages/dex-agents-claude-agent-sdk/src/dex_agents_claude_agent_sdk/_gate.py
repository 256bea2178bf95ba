"""The hooks of a segment: which calls run inside it, which leave it, and when it stops."""

import asyncio
import logging
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from claude_agent_sdk import (
    AssistantMessage,
    HookContext,
    HookInput,
    HookJSONOutput,
    HookMatcher,
    PermissionResultDeny,
    ToolPermissionContext,
    ToolUseBlock,
)
from claude_agent_sdk.types import HookEvent

from dex_agents_claude_agent_sdk._names import ASK_USER, ToolBook
from dex_agents_claude_agent_sdk._private import POST_TOOL_BATCH, Hook

HANDED_OVER: Final = "handed to a Step of its own"
"""Why the CLI is told not to run a call that the session runs. These rows are rejected, so no model reads it."""

STOPPED: Final = "not run: the agent was stopped before it"
"""What the next turn's model is told of a call that would have left a segment that the user's own code stopped."""

HOOK_SECONDS: Final = 1_000.0
"""How long the CLI waits for our hooks: longer than a segment may last."""

_log = logging.getLogger("dex_agents_claude_agent_sdk")

_MESSAGE_SECONDS: Final = 120.0
"""How long a hook waits for the end of a message whose end the CLI does not tell."""


@dataclass(frozen=True)
class HandedCall:
    """A call that leaves the segment.

    Attributes:
        name: The tool, as the model sees it.
        arguments: What the model wrote, as hooks of the user may have changed it.
        asks: A hook of the user's wants people to be asked.
    """

    name: str
    arguments: dict[str, Any]
    asks: bool = False


@dataclass
class _Verdict:
    """What the user's own hooks said about a call."""

    denied: str | None = None
    allows: bool = False
    asks: bool = False
    arguments: dict[str, Any] | None = None


@dataclass
class Gate:
    """Decides about the calls of one segment.

    The CLI begins to run tools while their message still streams. A result that comes before the message's end lands in
    the middle of its transcript, where the others can no longer be put. So each call waits for the message's end.

    Attributes:
        book: Where tools run.
        only: Runs this one call alone and no other: the tool's name and the call's id; None in a conversation. The
            arguments are those that the played model asks with, in the form that the CLI gives them before its hooks.
        handed: The calls that leave the segment, by id.
        refused: Calls that the user's own hooks or `can_use_tool` refused and that would have left it, with the reason.
        user_stopped: One of these told the CLI to stop.
    """

    book: ToolBook
    only: tuple[str, str] | None = None
    handed: dict[str, HandedCall] = field(default_factory=dict[str, HandedCall])
    refused: dict[str, str] = field(default_factory=dict[str, str])
    user_stopped: bool = False
    _verdicts: dict[str, _Verdict] = field(default_factory=dict[str, _Verdict])
    _streaming: dict[str, None] = field(default_factory=dict[str, None])
    _is_streaming: bool = False
    _ended: dict[str, asyncio.Event] = field(default_factory=dict[str, asyncio.Event])

    @property
    def told(self) -> dict[str, str]:
        """What the model is told, in place of the CLI's words, of calls that do not leave the segment after all."""
        return {**(dict.fromkeys(self.handed, STOPPED) if self.user_stopped else {}), **self.refused}

    def hooks(self, own: dict[HookEvent, list[HookMatcher]] | None) -> dict[HookEvent, list[HookMatcher]]:
        """Return the hooks for the CLI: the user's own, watched, and ours behind them."""
        merged: dict[HookEvent, list[HookMatcher]] = {
            event: [replace(each, hooks=[self._watch(event, each, hook) for hook in each.hooks]) for each in matchers]
            for event, matchers in (own or {}).items()
        }
        ours: list[tuple[str, Hook]] = [("PreToolUse", self.before_call), (POST_TOOL_BATCH, self.after_batch)]
        for event, hook in ours:
            matcher = HookMatcher(hooks=[hook], timeout=HOOK_SECONDS, on_failure="block")
            merged.setdefault(cast("HookEvent", event), []).append(matcher)
        return merged

    def _watch(self, event: str, matcher: HookMatcher, hook: Hook) -> Hook:
        """Remember what a hook of the user's says: the CLI asks all hooks at once, and ours cannot hear the others."""

        async def watched(given: HookInput, call_id: str | None, context: HookContext) -> HookJSONOutput:
            try:
                said = await hook(given, call_id, context)
            except Exception as error:
                if event == "PreToolUse" and call_id and matcher.on_failure == "block":
                    self._verdict(call_id).denied = f"a hook failed: {type(error).__name__}: {error}"
                raise
            self._note(event, call_id, cast("dict[str, Any]", said))
            return said

        return watched

    def _verdict(self, call_id: str) -> _Verdict:
        return self._verdicts.setdefault(call_id, _Verdict())

    def _note(self, event: str, call_id: str | None, said: dict[str, Any]) -> None:
        if said.get("continue_") is False:
            self.user_stopped = True
        if event != "PreToolUse" or call_id is None:
            return
        verdict = self._verdict(call_id)
        more: dict[str, Any] = said.get("hookSpecificOutput") or {}
        if said.get("decision") == "block" or more.get("permissionDecision") == "deny":
            verdict.denied = str(more.get("permissionDecisionReason") or said.get("reason") or "a hook denied the call")
        verdict.allows = verdict.allows or more.get("permissionDecision") == "allow"
        verdict.asks = verdict.asks or more.get("permissionDecision") == "ask"
        verdict.arguments = more.get("updatedInput", verdict.arguments)

    async def before_call(self, given: HookInput, call_id: str | None, context: HookContext) -> HookJSONOutput:
        """Decide about one call (the hook `PreToolUse`)."""
        call = cast("dict[str, Any]", given)
        name, arguments = str(call["tool_name"]), cast("dict[str, Any]", call["tool_input"])
        if call_id is None:
            return _say("deny", "a call without an id cannot be recorded")
        if self.only is not None:
            return _say("allow") if (name, call_id) == self.only else _say("deny", "not the call of this Step")
        is_main = not call.get("agent_id")
        if is_main:
            await self._end_of_message(call_id)
        place = self.book.place(name)
        is_read = place == "inline" or (place == "cli" and self.book.is_allowed(name))
        # A read behind a write may need what that does, which happens only behind the segment.
        if is_read and not (is_main and self._is_behind_handed() and self.book.runs_alone(name)):
            # Without a word of ours the CLI asks the agent's own rules and callback.
            return _say("allow") if self.book.callback is None else {}
        if place == "cli" and not is_read:
            if self.book.may_have_rule(name):
                return {}
            return _say("deny", f"{name} is not allowed here: nothing says that it may run")
        if place == "alone" and not self.book.runs_alone(name):
            return _say("deny", f"{name} cannot leave its message: it runs only while that does")
        if not is_main:
            return _say("deny", f"{name} can only be called by the main agent: report what should be done to it")
        self.handed[call_id] = HandedCall(name, arguments)
        return _say("deny", HANDED_OVER)

    def _is_behind_handed(self) -> bool:
        """Whether an earlier call of the message leaves the segment, to run in a Step."""
        return any(each.name != ASK_USER for each in self.handed.values())

    async def after_batch(self, given: HookInput, call_id: str | None, context: HookContext) -> HookJSONOutput:
        """Stop the segment behind a message with calls that left it (the hook `PostToolBatch`)."""
        if cast("dict[str, Any]", given).get("agent_id") or not self.handed:
            return {}
        for handed_id, handed in list(self.handed.items()):
            verdict = self._verdict(handed_id)
            if verdict.denied is None:
                arguments = handed.arguments if verdict.arguments is None else verdict.arguments
                asked = HandedCall(handed.name, arguments, asks=verdict.asks)
                self.handed[handed_id] = await self._ask_callback(handed_id, asked, verdict)
            if verdict.denied is not None:
                self.refused[handed_id] = verdict.denied
        for refused_id in self.refused:
            self.handed.pop(refused_id, None)
        return {"continue_": False, "stopReason": HANDED_OVER}

    async def _ask_callback(self, call_id: str, handed: HandedCall, verdict: _Verdict) -> HandedCall:
        """Let the agent's own `can_use_tool` decide; the CLI never asks it about a call that a hook of ours denies."""
        callback = self.book.callback
        is_decided = verdict.allows or verdict.asks or self.user_stopped or not self.book.asks_callback(handed.name)
        if callback is None or is_decided:
            return handed
        try:
            said = await callback(handed.name, handed.arguments, ToolPermissionContext(tool_use_id=call_id))
        except Exception as error:  # noqa: BLE001  in a plain run, too, whatever it raises refuses the call
            _log.warning("can_use_tool failed for a call of %s, which is refused", handed.name, exc_info=error)
            verdict.denied = f"can_use_tool failed: {type(error).__name__}"
            return handed
        if isinstance(said, PermissionResultDeny):
            verdict.denied = said.message or f"can_use_tool denied {handed.name}"
            self.user_stopped = self.user_stopped or said.interrupt
        elif said.updated_input is not None:
            return replace(handed, arguments=said.updated_input)
        return handed

    def see_event(self, event: dict[str, Any]) -> None:
        """Follow the main agent's stream, for the ends of its messages."""
        match event.get("type"):
            case "message_start":
                self._is_streaming = True
                self._streaming.clear()
            case "content_block_start" if event["content_block"].get("type") == "tool_use":
                self._streaming[event["content_block"]["id"]] = None
            case "message_stop":
                self._is_streaming = False
                for call_id in self._streaming:
                    self._ended_event(call_id).set()
            case _:
                pass

    def see_message(self, message: AssistantMessage) -> None:
        """Follow messages that came without a stream, as after a fallback of the CLI."""
        if not self._is_streaming:
            for block in message.content:
                if isinstance(block, ToolUseBlock):
                    self._ended_event(block.id).set()

    def _ended_event(self, call_id: str) -> asyncio.Event:
        return self._ended.setdefault(call_id, asyncio.Event())

    async def _end_of_message(self, call_id: str) -> None:
        try:
            await asyncio.wait_for(self._ended_event(call_id).wait(), _MESSAGE_SECONDS)
        except TimeoutError:
            # Nothing streams any more; the check of the transcript finds it if that was wrong.
            return


def _say(decision: str, reason: str | None = None) -> HookJSONOutput:
    output: dict[str, Any] = {"hookEventName": "PreToolUse", "permissionDecision": decision}
    if reason is not None:
        output["permissionDecisionReason"] = reason
    return cast("HookJSONOutput", {"hookSpecificOutput": output})
