"""A model provider for tests: HTTP servers on loopback that speak the real wire formats and answer from a script.

OpenAI Chat Completions and Responses, Anthropic Messages and Gemini, streamed and in one piece, so that each
framework's own provider client runs in tests. It refuses what the real ones refuse: a history in which tool calls and
tool results do not match.
"""

from support.fake_provider._process import FakeProviderProcess
from support.fake_provider._provider import FakeProvider
from support.fake_provider._recording import RecordedRequest, read_log
from support.fake_provider._replies import (
    ConnectionCut,
    EventGate,
    FileGate,
    FinishReason,
    Gate,
    HttpError,
    Reply,
    ToolCall,
    Usage,
)
from support.fake_provider._script import ChooseBy, Script, ScriptExhaustedError, dump_script, load_script

__all__ = [
    "ChooseBy",
    "ConnectionCut",
    "EventGate",
    "FakeProvider",
    "FakeProviderProcess",
    "FileGate",
    "FinishReason",
    "Gate",
    "HttpError",
    "RecordedRequest",
    "Reply",
    "Script",
    "ScriptExhaustedError",
    "ToolCall",
    "Usage",
    "dump_script",
    "load_script",
    "read_log",
]
