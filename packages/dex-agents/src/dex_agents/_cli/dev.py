"""`dex-agents dev`: the embedded engine as a server on this machine."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from dex_agents._cli.json_log import log_as_json
from dex_agents._cli.options import data_option
from dex_agents._serving.engine import RunningEngine
from dex_agents._serving.signals import wait_for_stop_signal
from dex_agents.errors import DexAgentsError

_POSITIVE: Final = click.IntRange(1, 10**15)  # exact also as a floating-point number


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
@click.option(
    "--stream-backend",
    type=click.Choice(["memory", "file", "disabled"]),
    default="memory",
    show_default=True,
    help="Where live events are kept; with file they survive a restart.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    help="Port of 127.0.0.1 for OpenMetrics at /metrics; off when it is not given.",
)
@click.option("--max-value-bytes", type=_POSITIVE, help="Largest single value that is stored; 16 MiB by default.")
@click.option("--max-flow-state-bytes", type=_POSITIVE, help="What a run may store; 64 MiB by default.")
@click.option("--history-events", type=_POSITIVE, help="Transitions that a run's history has; 10,000 by default.")
@click.option("--retention-seconds", type=_POSITIVE, help="How long a closed run stays readable; 7 days by default.")
@click.option("--log-json", is_flag=True, help="Write the log to stderr, one JSON object a line.")
@data_option
def dev(
    port: int,
    host: str,
    token_file: Path | None,
    stream_backend: str,
    metrics_port: int | None,
    log_json: bool,
    directory: Path,
    **limits: int | None,
) -> None:
    """Serve the embedded engine until SIGINT or SIGTERM.

    It serves this machine only. Workers and clients find it with --address, or DEX_SERVER_ADDRESS. The limits and the
    retention hold for runs that start from now on.
    """
    if log_json:
        log_as_json()
    options: dict[str, object] = {name: number for name, number in limits.items() if number is not None}
    options |= {"token_file": token_file, "stream_backend": stream_backend, "metrics_port": metrics_port}
    asyncio.run(_serve(f"[{host}]:{port}" if ":" in host else f"{host}:{port}", directory.absolute(), options))


async def _serve(address: str, directory: Path, options: Mapping[str, object]) -> None:
    async with RunningEngine(directory, address=address, **options) as engine:
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
