"""Runs the provider as a process of its own, until it is told to stop."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from pathlib import Path

from support.fake_provider._provider import FakeProvider
from support.fake_provider._script import Script, load_script


async def serve(script: Script, port_file: Path, log: Path | None, *, stops_with_input: bool) -> None:
    """Serve a script, and write the port to a file once the provider listens."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    if stops_with_input:
        loop.add_reader(sys.stdin.fileno(), stopped.set)
    async with FakeProvider(log=log) as provider:
        provider.script(script)
        # Renamed, so that whoever sees the file sees the whole number.
        unfinished = port_file.with_name(f"{port_file.name}.unfinished")
        unfinished.write_text(str(provider.addresses.port), encoding="utf-8")
        unfinished.rename(port_file)
        await stopped.wait()
        loop.remove_reader(sys.stdin.fileno())


def main() -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(prog="python -m support.fake_provider", description=__doc__)
    parser.add_argument("--script", type=Path, required=True, help="JSON file with the replies")
    parser.add_argument("--port-file", type=Path, required=True, help="file that gets the port, once it listens")
    parser.add_argument("--log", type=Path, help="file to which each request is appended when it arrives")
    parser.add_argument("--stop-with-input", action="store_true", help="stop when standard input (a pipe) ends")
    arguments = parser.parse_args()
    script = load_script(arguments.script)
    asyncio.run(serve(script, arguments.port_file, arguments.log, stops_with_input=arguments.stop_with_input))


if __name__ == "__main__":
    main()
