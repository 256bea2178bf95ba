"""The options of one segment: the user's own, made safe, and with what a session needs."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast, get_args

from claude_agent_sdk import (
    ClaudeAgentOptions,
    EffortLevel,
    McpSdkServerConfig,
    PermissionResultAllow,
    PermissionResultDeny,
    SessionStore,
    ToolPermissionContext,
)
from claude_agent_sdk.types import SystemPromptCustom, SystemPromptFile, SystemPromptPreset

from dex_agents.checks import check, check_instance
from dex_agents.errors import ConfigurationError, TurnFailedError
from dex_agents.runner import StepContext
from dex_agents_claude_agent_sdk._gate import Gate
from dex_agents_claude_agent_sdk._names import ASK_USER, ToolBook, own_servers
from dex_agents_claude_agent_sdk._processes import SEGMENT_VARIABLE, SegmentPlace
from dex_agents_claude_agent_sdk._servers import guard
from dex_agents_claude_agent_sdk._store import TranscriptStore

DEFAULT_ENVIRONMENT: Final = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "NODE_EXTRA_CA_CERTS",
    "NO_PROXY",
    "PATH",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "TZ",
    "http_proxy",
    "https_proxy",
    "no_proxy",
)
"""Variables of the Worker that a CLI gets; everything else of the Worker's environment stays with it."""

BUFFER_BYTES: Final = 64 * 1024 * 1024
"""Most bytes of one message of the CLI; the SDK's 1 MiB is less than an image."""

_FIXED: Final[Mapping[str, str]] = {
    # Work in the background would die with its segment.
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_TELEMETRY": "1",
    # The Step's policy repeats what fails; the CLI's own ten attempts would take longer than a segment may.
    "CLAUDE_CODE_MAX_RETRIES": "2",
}
_SET_BY_THE_SDK: Final = (
    "CLAUDE_AGENT_SDK_CLIENT_APP",
    "CLAUDE_AGENT_SDK_VERSION",
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_CODE_SDK_READS_SESSION_STATE",
    "BAGGAGE",
    "PWD",
    "TRACEPARENT",
    "TRACESTATE",
)
_OURS: Final = ("resume", "resume_session_at", "session_id", "session_store")
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check_options(options: ClaudeAgentOptions, environment: Sequence[str]) -> None:
    """Refuse what a session decides itself.

    Raises:
        ConfigurationError: The options are none or name a conversation, or a variable's name is none.
    """
    check_instance("the agent", options, ClaudeAgentOptions, "give the ClaudeAgentOptions that a plain run has")
    names = cast("object", environment)
    named = isinstance(names, Sequence) and not isinstance(names, str)
    check("environment", environment, named, "give a list of names, for example [*DEFAULT_ENVIRONMENT, 'MY_NAME']")
    for name in _OURS:
        if getattr(options, name) is not None:
            raise ConfigurationError(
                f"the options set {name}={getattr(options, name)!r}: leave it out, sessions set it"
            )
    for name in ("continue_conversation", "fork_session", "enable_file_checkpointing"):
        if getattr(options, name):
            raise ConfigurationError(f"the options set {name}: leave it out, it cannot be used in a session")
    if options.permission_prompt_tool_name is not None:
        raise ConfigurationError(
            f"the options set permission_prompt_tool_name={options.permission_prompt_tool_name!r}, which would not be "
            "asked about calls that run in Steps: use can_use_tool, or policies with approval=True"
        )
    for name in environment:
        if not _PLAIN_NAME.fullmatch(name):
            raise ConfigurationError(f"{name!r} is no name of an environment variable")


def segment_environment(options: ClaudeAgentOptions, place: SegmentPlace) -> dict[str, str]:
    """Return the variables that a segment sets for its CLI."""
    return {
        **_FIXED,
        "HOME": str(place.home),
        "TMPDIR": str(place.temporary),
        "CLAUDE_CODE_TMPDIR": str(place.temporary),
        **options.env,
        # A configuration of the machine's is never read, whatever the options say.
        "CLAUDE_CONFIG_DIR": str(place.config),
        SEGMENT_VARIABLE: place.name,
    }


def kept_names(options: ClaudeAgentOptions, environment: Sequence[str], place: SegmentPlace) -> set[str]:
    """Return the names of all variables that the CLI gets."""
    return {*environment, *_SET_BY_THE_SDK, *segment_environment(options, place)}


def segment_options(
    options: ClaudeAgentOptions, *, place: SegmentPlace, gate: Gate, store: TranscriptStore, book: ToolBook
) -> ClaudeAgentOptions:
    """Return the options of a segment, before what depends on its input.

    Args:
        options: The user's own; they are not changed.
        place: Where the segment runs.
        gate: Decides about its calls.
        store: Holds its transcript.
        book: Where tools run.
    """
    servers: Any = options.mcp_servers
    if isinstance(options.mcp_servers, dict):
        guarded = dict(options.mcp_servers)
        for name, server in own_servers(options).items():
            inside = _InsideOnly(book, name)
            guarded[name] = {
                **cast("McpSdkServerConfig", guarded[name]),
                "instance": guard(server, inside),
            }
        servers = guarded
    asks_people = isinstance(options.tools, list) and ASK_USER in options.tools
    rules, more = options.allowed_tools, options.extra_args
    if asks_people and not options.can_use_tool and rules and options.skills is None:
        # The same flag, without the SDK's warning that our callback is not asked about these: it need not be.
        rules, more = [], {**more, "allowedTools": ",".join(rules)}
    return replace(
        options,
        allowed_tools=rules,
        extra_args=more,
        mcp_servers=servers,
        tools=[] if options.tools is None else options.tools,
        setting_sources=[] if options.setting_sources is None else options.setting_sources,
        strict_mcp_config=True,
        verbatim_prompts=True,
        include_partial_messages=True,
        max_buffer_size=BUFFER_BYTES if options.max_buffer_size is None else options.max_buffer_size,
        hooks=gate.hooks(options.hooks),
        # The tool with which the model asks people is offered only where somebody answers.
        can_use_tool=options.can_use_tool or (_deny if asks_people else None),
        # The methods that it leaves out are optional, although the protocol has them.
        session_store=cast("SessionStore", store),
        cli_path=place.launcher,
        env=segment_environment(options, place),
        cwd=options.cwd or Path.cwd(),
    )


class _InsideOnly:
    """Says whether a tool of a server may run inside a segment."""

    def __init__(self, book: ToolBook, server: str) -> None:
        self._book = book
        self._server = server

    def __call__(self, tool: str) -> bool:
        return self._book.place_of_own(self._server, tool) == "inline"


async def _deny(
    name: str, arguments: dict[str, Any], context: ToolPermissionContext
) -> PermissionResultAllow | PermissionResultDeny:
    return PermissionResultDeny(message=f"{name} is not allowed here: nothing says that it may run")


def with_instructions(
    prompt: str | SystemPromptPreset | SystemPromptCustom | SystemPromptFile | None, instructions: str | None
) -> SystemPromptPreset | SystemPromptCustom | SystemPromptFile:
    """Return the system prompt of a segment.

    The CLI would go on with the prompt of the session's first request; `snapshot` makes it take each segment's own.

    Args:
        prompt: The agent's.
        instructions: The session's setting, added behind it; None for none.

    Raises:
        TurnFailedError: Nothing can be added to a prompt that is a file.
    """
    if prompt is None or isinstance(prompt, str):
        text = "\n\n".join(part for part in (prompt, instructions) if part)
        return SystemPromptCustom(type="custom", prompt=text, snapshot=False)
    if prompt["type"] == "preset":
        preset = cast("SystemPromptPreset", {"snapshot": False, **prompt})
        if instructions:
            preset["append"] = "\n\n".join(part for part in (prompt.get("append"), instructions) if part)
        return preset
    if prompt["type"] == "custom":
        custom = cast("SystemPromptCustom", {"snapshot": False, **prompt})
        if instructions:
            custom["prompt"] = f"{prompt['prompt']}\n\n{instructions}"
        return custom
    if instructions:
        raise TurnFailedError("the setting 'instructions' cannot be added to a system prompt that is a file")
    return prompt


def effort_of(step: StepContext) -> EffortLevel | None:
    """Return the effort that the session's settings ask for; None where they ask for none.

    Raises:
        TurnFailedError: The SDK does not know this effort.
    """
    # Not `step.reasoning_effort`: its error would list efforts that this SDK does not take.
    effort = step.text_setting("reasoning_effort") if step.resolved is None else step.resolved.reasoning_effort
    known: tuple[EffortLevel, ...] = get_args(EffortLevel)
    if effort is not None and effort not in known:
        raise TurnFailedError(f"the reasoning effort is {effort!r}: the Claude Agent SDK knows {', '.join(known)}")
    return effort
