"""`dex-agents demo`: shows what survives, with two processes that are killed."""

import asyncio
import signal

import click
from rich.console import Console

from dex_agents._demo.display import Display
from dex_agents._demo.frameworks import find_demo
from dex_agents._demo.processes import ProcessFailedError
from dex_agents._demo.story import play


@click.command()
@click.option("--framework", default="pydantic-ai", show_default=True, help="Whose demo agent to run.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON at the end; the story goes to stderr.")
def demo(framework: str, as_json: bool) -> None:
    """Run an agent, kill its Worker and its engine on the way, and count what ran how often.

    Needs no model provider and no key. The exit code is 1 when a promise did not hold or the story broke off.
    """
    entry_point = find_demo(framework)
    display = Display(Console(stderr=as_json))
    # SIGTERM ends the story like SIGINT, so that no process of it stays behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        evidence = asyncio.run(play(entry_point, display))
    except ProcessFailedError as error:
        raise click.ClickException(str(error)) from error
    display.show_report(evidence.report())
    broken = evidence.broken_promises()
    for promise in broken:
        click.echo(f"broken promise: {promise}", err=True)
    if as_json:
        click.echo(evidence.report().model_dump_json())
    if broken:
        raise SystemExit(1)
