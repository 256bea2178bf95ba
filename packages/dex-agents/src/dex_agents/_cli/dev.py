"""`dex-agents dev`: the embedded engine as a server on this machine."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import click

from dex_agents._cli.options import data_option
from dex_agents._serving.engine import RunningEngine
from dex_agents._serving.signals import wait_for_stop_signal


@click.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8801,
    show_default=True,
    help="Port to serve on; 0 takes a free one.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to serve on.")
@click.option(
    "--token-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File with one bearer token a line; every call needs one. Required for a host that others can reach.",
)
@data_option
def dev(port: int, host: str, token_file: Path | None, directory: Path) -> None:
    """Serve the embedded engine until SIGINT or SIGTERM.

    It serves this machine only. Workers and clients find it with --address, or DEX_SERVER_ADDRESS.
    """
    options = {} if token_file is None else {"token_file": token_file}
    asyncio.run(_serve(f"[{host}]:{port}" if ":" in host else f"{host}:{port}", directory.absolute(), options))


async def _serve(address: str, directory: Path, options: Mapping[str, object]) -> None:
    async with RunningEngine(directory, address=address, **options) as engine:
        click.echo(f"dex-agents dev serves at {engine.address} (data in {directory})")
        await wait_for_stop_signal()
