"""`dex-agents worker`: serves one agent."""

import asyncio
import logging
from pathlib import Path

import click

from dex_agents._cli.options import address_option, data_option
from dex_agents._cli.repeated_lines import quieten_outages
from dex_agents._cli.target import load_flow
from dex_agents._serving.worker import DEFAULT_MAX_CONCURRENT_TASKS
from dex_agents.host import DEFAULT_DRAIN_SECONDS, AgentHost
from dex_agents.session_flow import AgentSessionFlow


@click.command()
@click.argument("target", metavar="MODULE:ATTRIBUTE")
@address_option
@data_option
@click.option(
    "--max-concurrent-tasks",
    type=click.IntRange(min=2),
    default=DEFAULT_MAX_CONCURRENT_TASKS,
    show_default=True,
    help="Steps and RPCs that run at a time; one is kept free for RPCs.",
)
@click.option(
    "--drain-timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=DEFAULT_DRAIN_SECONDS,
    show_default=True,
    help="Seconds that running tasks get to finish after SIGINT or SIGTERM.",
)
def worker(target: str, address: str | None, directory: Path, max_concurrent_tasks: int, drain_timeout: float) -> None:
    """Serve the agent at MODULE:ATTRIBUTE until SIGINT or SIGTERM.

    The attribute is an AgentSessionFlow or a function that returns one; the current directory is searched too. Without
    a Dex Server (--address or DEX_SERVER_ADDRESS) it runs the embedded engine itself, in --data.
    """
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    quieten_outages()
    flow = load_flow(target)
    host = AgentHost(
        flow,
        address=address,
        directory=directory,
        max_concurrent_tasks=max_concurrent_tasks,
        drain_timeout=drain_timeout,
    )
    asyncio.run(_serve(host, flow))


async def _serve(host: AgentHost, flow: AgentSessionFlow) -> None:
    async with host:
        click.echo(f"dex-agents worker serves agent {flow.name!r} at {host.address}")
        await host.serve_until_stopped()
