"""Sessions of the scripted agent on the embedded engine, in one process."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from dex_agents import AgentHost, AgentSessionFlow, AgentSessionOptions, Budget
from dex_agents.encryption import Encryption
from dex_agents.reconciliation import Happened, Reconcilers, UnknownCall
from dex_agents.runner import StepContext
from dex_agents.session import AgentSession
from dex_agents.settings import ResolvedSettings, SettingsResolver
from dex_agents.snapshot import AgentSnapshot, Interrupt, ToolCallSnapshot
from support.scripted_runner import ScriptedRunner, note_run
from support.waiting import wait_for


def scripted_flow(
    options: AgentSessionOptions | None = None,
    reconcilers: Reconcilers | None = None,
    settings_resolver: SettingsResolver | None = None,
) -> AgentSessionFlow:
    """Build the scripted agent's Flow, the same in every process."""
    options = options or AgentSessionOptions()
    runner = ScriptedRunner(compacts=options.compaction is not None)
    return AgentSessionFlow(
        runner, name="scripted", options=options, reconcilers=reconcilers, settings_resolver=settings_resolver
    )


def resolved_flow() -> AgentSessionFlow:
    """Build the scripted agent with a resolver that takes the secret of a plan from the Worker's environment."""

    async def resolve(step: StepContext) -> ResolvedSettings:
        note_run("resolver", plan=step.text_setting("plan") or "")
        return ResolvedSettings(
            model=f"{step.text_setting('plan')}-{os.environ['PLAN_SECRET']}", reasoning_effort="high"
        )

    return scripted_flow(settings_resolver=resolve)


def reconciled_flow() -> AgentSessionFlow:
    """Build the scripted agent with a reconciler whose first run never ends."""

    async def find(call: UnknownCall) -> Happened:
        note_run("reconciler", key=call.idempotency_key, attempt=call.attempt)
        if call.attempt == 1:
            await asyncio.sleep(60)
        return Happened(result="found by its key")

    return scripted_flow(reconcilers={"write_blocks": find})


def budgeted_flow() -> AgentSessionFlow:
    """Build the scripted agent with a turn budget of three model calls."""
    return scripted_flow(AgentSessionOptions(turn_budget=Budget(model_calls=3)))


def sealed_flow() -> AgentSessionFlow:
    """Build the scripted agent with encryption at rest, by the keys in the environment."""
    keys = json.loads(os.environ["SEALED_KEYS"])
    encryption = Encryption({name: bytes.fromhex(key) for name, key in keys.items()}, write_with=max(keys))
    return scripted_flow(AgentSessionOptions(at_rest=encryption))


def another_flow() -> AgentSessionFlow:
    """Build a second agent, with a name of its own."""
    return AgentSessionFlow(ScriptedRunner(), name="another")


@asynccontextmanager
async def scripted_session(
    directory: Path,
    *,
    session_id: str = "s-1",
    options: AgentSessionOptions | None = None,
    reconcilers: Reconcilers | None = None,
    settings_resolver: SettingsResolver | None = None,
) -> AsyncGenerator[AgentSession]:
    """Serve the scripted agent and start one session of it."""
    async with AgentHost(scripted_flow(options, reconcilers, settings_resolver), directory=directory) as host:
        session = host.session(session_id)
        await session.start(title="a test", user="tester")
        yield session


async def pending(session: AgentSession, count: int = 1) -> tuple[Interrupt, ...]:
    """Wait until so many interrupts are pending."""

    async def check() -> tuple[Interrupt, ...] | None:
        interrupts = (await session.snapshot()).pending_interrupts
        return interrupts if len(interrupts) >= count else None

    return await wait_for(check, what=f"{count} pending interrupts")


async def snapshot_when(session: AgentSession, status: str) -> AgentSnapshot:
    """Wait until the session has a status."""

    async def check() -> AgentSnapshot | None:
        snapshot = await session.snapshot()
        return snapshot if snapshot.status == status else None

    return await wait_for(check, what=f"status {status}")


async def call_named(session: AgentSession, name: str) -> ToolCallSnapshot:
    """Return the running turn's call of a tool."""
    calls = [call for call in (await session.snapshot()).tool_calls if call.name == name]
    assert len(calls) == 1, calls
    return calls[0]
