"""Tools for crash tests: each run is written down outside the session, and one of them can be held in its middle.

`CRASH_LOG` names the log. The first run of the tool that `CRASH_HOLD` names waits in its middle until the file
`CRASH_RELEASE` exists, so that a test can kill processes there.
"""

import asyncio
import json
import os
from datetime import timedelta
from pathlib import Path

from dex_agents import ToolEffect, ToolPolicies, ToolPolicy, current_tool_call, resume_later
from support.fake_provider import FileGate

POLICIES: ToolPolicies = {
    "read_stock": ToolEffect.READ,
    "reserve": ToolEffect.IDEMPOTENT_WRITE,
    "charge": ToolEffect.NON_IDEMPOTENT_WRITE,
    "ship": ToolPolicy(effect=ToolEffect.NON_IDEMPOTENT_WRITE, approval=True),
    "call_warehouse": ToolEffect.READ,
    "print_label": ToolEffect.NON_IDEMPOTENT_WRITE,
    "load_truck": ToolEffect.IDEMPOTENT_WRITE,
}


async def read_stock(item: str) -> str:
    """Say how many of an item there are."""
    await _run("read_stock")
    return f"7 pieces of {item}"


async def reserve(item: str) -> str:
    """Reserve an item."""
    await _run("reserve")
    return f"{item} is reserved"


async def charge(euros: int) -> str:
    """Charge the customer."""
    await _run("charge")
    return f"{euros} euros are charged"


async def ship(item: str) -> str:
    """Ship an item."""
    await _run("ship")
    return f"{item} is on its way"


async def call_warehouse(item: str) -> str:
    """Ask the warehouse for an item."""
    await _run("call_warehouse")
    raise ConnectionError(f"nobody answers about {item}")


async def print_label(item: str) -> str:
    """Print the label of an item."""
    await _run("print_label")
    raise ConnectionError(f"the printer jammed at {item}")


async def load_truck(item: str) -> str:
    """Load an item onto the truck, as soon as it is there."""
    await _run("load_truck")
    call = current_tool_call()
    assert call is not None
    if not call.resumed:
        resume_later(after=timedelta(seconds=1), reason="the truck is on its way")
    return f"{item} is on the truck"


TOOLS = (read_stock, reserve, charge, ship, call_warehouse, print_label, load_truck)
"""All of them, for an agent to have."""


def runs(log: Path, name: str, phase: str = "started") -> list[dict[str, str]]:
    """Return the log's lines about one tool."""
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    parsed: list[dict[str, str]] = [json.loads(line) for line in lines]
    return [line for line in parsed if line["tool"] == name and line["phase"] == phase]


async def _run(name: str) -> None:
    log = Path(os.environ["CRASH_LOG"])
    _write(log, name, "started")
    if os.environ.get("CRASH_HOLD") == name and len(runs(log, name)) == 1:
        await FileGate(Path(os.environ["CRASH_RELEASE"])).wait()
    await asyncio.sleep(0)
    _write(log, name, "finished")


def _write(log: Path, name: str, phase: str) -> None:
    running = current_tool_call()
    assert running is not None
    line = json.dumps({"tool": name, "phase": phase, "key": running.idempotency_key, "pid": str(os.getpid())})
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)
