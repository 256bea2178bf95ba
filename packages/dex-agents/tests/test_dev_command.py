"""`dex-agents dev`: one line when it serves, one line when it cannot."""

import json
import signal
import socket
import sqlite3
import urllib.request
from pathlib import Path
from typing import Any, cast

import grpc
import grpc.aio
import pytest
from click.testing import CliRunner
from dex.dexpb import dex_pb2 as pb

from dex_agents import AgentHost
from dex_agents._cli import main
from support.command import Command
from support.scripted_sessions import scripted_flow

SERVES = "dex-agents dev serves at "


def address_of(command: Command) -> str:
    return command.wait_for_line(SERVES).removeprefix(SERVES).split()[0]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_a_signal_and_ends_with_zero(tmp_path: Path, number: signal.Signals) -> None:
    with Command(["dev", "--port", "0"], directory=tmp_path) as command:
        assert address_of(command).startswith("127.0.0.1:")
        assert command.interrupt(number) == 0
        assert command.output.count("\n") == 1, command.output
    assert (tmp_path / ".dex-agents" / "engine.db").exists()


async def test_agents_are_served_and_called_through_it(tmp_path: Path) -> None:
    with Command(["dev", "--port", "0", "--data", "here"], directory=tmp_path) as command:
        async with AgentHost(scripted_flow(), address=address_of(command)) as host:
            await host.session("s-1").start()
            assert (await host.session("s-1").ask("say hello", timeout=10)).text == "hello"
    assert (tmp_path / "here" / "engine.db").exists()


def refused(command: Command) -> str:
    assert command.wait() == 2
    output = command.output
    assert "Traceback" not in output
    # gRPC itself may log a line of its own before ours.
    (line,) = [line for line in output.splitlines() if line.startswith("Error: ")]
    return line


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    with Command(["dev", "--port", "0"], directory=tmp_path) as first:
        address_of(first)
        with Command(["dev", "--port", "0"], directory=tmp_path) as second:
            assert "another engine uses" in refused(second)


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        with Command(["dev", "--port", port], directory=tmp_path) as command:
            line = refused(command)
    assert port in line
    assert "another program has it" in line


def test_an_address_that_others_can_reach_is_refused(tmp_path: Path) -> None:
    everywhere = "0.0.0.0"  # noqa: S104  it must be refused
    with Command(["dev", "--host", everywhere, "--port", "0"], directory=tmp_path) as command:
        line = refused(command)
    assert everywhere in line
    assert "token file" in line


def test_a_file_of_a_newer_version_and_one_that_is_none_are_refused(tmp_path: Path) -> None:
    data = tmp_path / ".dex-agents"
    with Command(["dev", "--port", "0"], directory=tmp_path) as command:
        address_of(command)
        command.interrupt(signal.SIGTERM)
    database = sqlite3.connect(data / "engine.db")
    (version,) = database.execute("PRAGMA user_version").fetchone()
    database.execute(f"PRAGMA user_version = {version + 1}")
    database.close()
    with Command(["dev", "--port", "0"], directory=tmp_path) as command:
        assert "newer" in refused(command)
    for file in data.glob("engine.db*"):
        file.write_bytes(b"something else entirely")
    with Command(["dev", "--port", "0"], directory=tmp_path) as command:
        assert "engine.db" in refused(command)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--port", "70000"),
        ("--metrics-port", "-1"),
        ("--max-value-bytes", "0"),
        ("--max-flow-state-bytes", "-1"),
        ("--history-events", "0"),
        ("--retention-seconds", "nan"),
    ],
)
def test_a_number_out_of_its_range_is_refused_by_the_command_line(option: str, value: str) -> None:
    result = CliRunner().invoke(main, ["dev", option, value])
    assert result.exit_code == 2
    assert option in result.output
    assert value in result.output


async def test_limits_that_are_given_hold(tmp_path: Path) -> None:
    with Command(["dev", "--port", "0", "--max-value-bytes", "1000"], directory=tmp_path) as command:
        async with grpc.aio.insecure_channel(address_of(command)) as channel:
            start = pb.StartFlowRequest(flow_id="f", flow_type="F", request_id="r")
            start.step_input.string_value = "x" * 1001
            call = cast(Any, channel).unary_unary("/dex.FlowService/StartFlow")
            with pytest.raises(grpc.aio.AioRpcError, match="the limit is 1000") as caught:
                await call(start.SerializeToString())
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT


async def test_with_a_token_file_only_those_who_know_a_token_are_served(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("correct-horse-battery-staple\n")
    everywhere = "0.0.0.0"  # noqa: S104  with a token it is served
    arguments = ["dev", "--host", everywhere, "--port", "0", "--token-file", "tokens"]
    with Command(arguments, directory=tmp_path) as command:
        port = address_of(command).rpartition(":")[2]
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            ask = cast(Any, channel).unary_unary("/dex.FlowService/HealthCheck", response_deserializer=bytes)
            assert await ask(b"", metadata=[("authorization", "Bearer correct-horse-battery-staple")])
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await ask(b"")
        assert caught.value.code() == grpc.StatusCode.UNAUTHENTICATED


def test_a_token_file_without_a_token_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("\n")
    with Command(["dev", "--port", "0", "--token-file", "tokens"], directory=tmp_path) as command:
        assert "is empty" in refused(command)


def test_the_log_can_be_json_and_metrics_are_served_when_asked_for(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        metrics_port = str(probe.getsockname()[1])
    arguments = ["dev", "--port", "0", "--log-json", "--metrics-port", metrics_port, "--stream-backend", "file"]
    with Command(arguments, directory=tmp_path) as command:
        address = address_of(command)
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/metrics", timeout=5) as answer:
            assert b"dex_engine_queue_depth 0.0" in answer.read()
        line = next(line for line in command.output.splitlines() if line.startswith("{"))
        assert json.loads(line)["address"] == address
    assert (tmp_path / ".dex-agents" / "streams").is_dir()
