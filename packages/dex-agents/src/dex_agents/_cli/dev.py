"""`dex-agents dev`: the embedded engine as a server on this machine."""

import asyncio
from pathlib import Path

import click

from dex_agents._cli.options import data_option
from dex_agents._serving.engine import RunningEngine
from dex_agents._serving.signals import wait_for_stop_signal
from dex_agents.errors import DexAgentsError


@click.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8801,
    show_default=True,
    help="Port to serve on; 0 takes a free one.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Loopback address to serve on.")
@data_option
def dev(port: int, host: str, directory: Path) -> None:
    """Serve the embedded engine until SIGINT or SIGTERM.

    It serves this machine only. Workers and clients find it with --address, or DEX_SERVER_ADDRESS.
    """
    asyncio.run(_serve(f"[{host}]:{port}" if ":" in host else f"{host}:{port}", directory.absolute()))


async def _serve(address: str, directory: Path) -> None:
    async with RunningEngine(directory, address=address) as engine:
        click.echo(f"dex-agents dev serves at {engine.address} (data in {directory})")
        # When the engine ends by itself (a full disk), the command ends with an error, so that a supervisor notices.
        stopped = asyncio.create_task(wait_for_stop_signal())

        def end(_: DexAgentsError) -> None:
            stopped.cancel()

        engine.on_death(end)
        try:
            await stopped
        except asyncio.CancelledError:
            if engine.death is None:
                raise
            raise engine.death from None
