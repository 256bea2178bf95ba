"""The fake provider as a process of its own, as crash tests use it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam

from support.fake_provider import (
    ConnectionCut,
    EventGate,
    FakeProviderProcess,
    FileGate,
    HttpError,
    Reply,
    Script,
    ToolCall,
    Usage,
    dump_script,
    load_script,
)

TESTS = Path(__file__).parents[1]
CALLER = """
import sys
from openai import OpenAI
client = OpenAI(base_url=sys.argv[1], api_key="sk-secret", max_retries=0)
print(client.chat.completions.create(model="m", messages=[{"role": "user", "content": "?"}]).choices[0].message.content)
"""


def run_caller(provider: FakeProviderProcess) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", CALLER, provider.addresses.openai_base_url]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


async def test_calls_are_counted_when_the_caller_is_killed_in_the_middle(tmp_path: Path) -> None:
    gate = FileGate(tmp_path / "opened")
    with FakeProviderProcess([[Reply(text="too late", gate=gate), Reply(text="second attempt")]], tmp_path) as provider:
        killed = run_caller(provider)
        await provider.received(1, seconds=30)
        os.kill(killed.pid, signal.SIGKILL)
        killed_output, _ = killed.communicate(timeout=5)
        again_output, _ = run_caller(provider).communicate(timeout=30)

        assert (killed_output, again_output) == (b"", b"second attempt\n")
        assert [(request.number, request.turn) for request in provider.requests] == [(0, 0), (1, 0)]
        assert "sk-secret" not in provider.log.read_text(encoding="utf-8")


async def test_a_file_opens_the_gate_of_another_process(tmp_path: Path) -> None:
    gate = FileGate(tmp_path / "opened")
    with FakeProviderProcess([Reply(text="open now", gate=gate)], tmp_path) as provider:
        caller = run_caller(provider)
        await provider.received(1, seconds=30)
        assert caller.poll() is None
        gate.open()
        output, _ = caller.communicate(timeout=30)

    assert output == b"open now\n"


async def test_replies_are_chosen_by_turn_unless_the_script_says_otherwise(tmp_path: Path) -> None:
    replies = [Reply(text="first"), Reply(text="second")]

    async def ask_twice(provider: FakeProviderProcess) -> list[str | None]:
        async with AsyncOpenAI(base_url=provider.addresses.openai_base_url, api_key="none") as client:
            question: list[ChatCompletionMessageParam] = [{"role": "user", "content": "?"}]
            completions = [await client.chat.completions.create(model="m", messages=question) for _ in range(2)]
        return [completion.choices[0].message.content for completion in completions]

    for name in ("by_turn", "in_order"):
        (tmp_path / name).mkdir()
    with FakeProviderProcess(replies, tmp_path / "by_turn") as by_turn:
        assert await ask_twice(by_turn) == ["first", "first"]
    with FakeProviderProcess(replies, tmp_path / "in_order", choose_by="order") as in_order:
        assert await ask_twice(in_order) == ["first", "second"]


def test_the_process_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    parent = """
import pathlib, sys, time
from support.fake_provider import FakeProviderProcess, Reply
provider = FakeProviderProcess([Reply(text="hi")], pathlib.Path(sys.argv[1])).__enter__()
print(provider.addresses.port, flush=True)
time.sleep(60)
"""
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    with subprocess.Popen(
        [sys.executable, "-c", parent, str(tmp_path)], stdout=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        assert can_connect(port)
        process.kill()

    deadline = time.monotonic() + 5
    while can_connect(port) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not can_connect(port)


def can_connect(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True


def test_a_script_that_cannot_be_read_ends_the_process_with_its_error(tmp_path: Path) -> None:
    (tmp_path / "script.json").write_text('{"replies": [], "chosen": "turn"}', encoding="utf-8")
    command = [sys.executable, "-m", "support.fake_provider", "--script", str(tmp_path / "script.json")]
    finished = subprocess.run(
        [*command, "--port-file", str(tmp_path / "port")],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        timeout=30,
        check=False,
    )

    assert finished.returncode == 1
    assert b"unknown fields ['chosen']; a script has choose_by and replies" in finished.stderr


def test_a_script_survives_the_way_through_its_file(tmp_path: Path) -> None:
    replies = [
        [Reply(failure=HttpError(503, "busy", retry_after_seconds=1)), Reply(failure=ConnectionCut(after_chunks=3))],
        Reply(
            text="Let me see.",
            reasoning="Two sums.",
            tool_calls=(ToolCall("add", {"a": 1}, id="mine"), ToolCall("add", "{broken")),
            finish_reason="length",
            usage=Usage(input_tokens=1, output_tokens=2, cached_tokens=0, reasoning_tokens=0),
            chunk_characters=3,
            chunk_delay_seconds=0.5,
            gate=FileGate(tmp_path / "opened"),
            gate_after_chunks=2,
        ),
    ]
    path = tmp_path / "script.json"
    path.write_text(dump_script(replies), encoding="utf-8")

    assert load_script(path).replies == Script(replies, "turn").replies


def test_a_gate_of_this_process_cannot_go_into_a_file() -> None:
    with pytest.raises(ValueError, match="can wait at a FileGate only"):
        dump_script([Reply(gate=EventGate())])
