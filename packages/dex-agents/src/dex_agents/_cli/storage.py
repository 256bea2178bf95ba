"""`dex-agents backup`, `integrity`, `export`, `import` and `purge`: the embedded engine's directory."""

from pathlib import Path

import click

from dex_agents._cli.options import data_option, existing_data_option
from dex_agents._serving.engine import engine_storage

_target = click.argument("target", type=click.Path(dir_okay=False, path_type=Path))


@click.command()
@_target
@existing_data_option
def backup(target: Path, directory: Path) -> None:
    """Copy the data of the engine to TARGET, also while the engine runs.

    To use the copy, put it into an empty directory as engine.db.
    """
    with engine_storage() as storage:
        storage.backup(directory, target)
    click.echo(f"{directory} is backed up in {target}")


@click.command()
@existing_data_option
def integrity(directory: Path) -> None:
    """Check the data of the engine, also while the engine runs. The exit code is 1 when something is wrong."""
    with engine_storage() as storage:
        problems = storage.check_integrity(directory)
    for problem in problems:
        click.echo(problem)
    if problems:
        raise SystemExit(1)
    click.echo(f"{directory} is whole")


@click.command()
@click.argument("session")
@_target
@existing_data_option
def export(session: str, target: Path, directory: Path) -> None:
    """Copy one SESSION to the file TARGET, also while the engine runs.

    The session stays where it is. Stop it, or the engine, before you import it elsewhere: two copies would both go on.
    """
    with engine_storage() as storage:
        runs = storage.export_flow(directory, session, target)
    click.echo(f"session {session} is exported to {target} ({runs} runs)")


@click.command()
@click.argument("session")
@existing_data_option
@click.confirmation_option(prompt="The session cannot be brought back. Delete it?")
def purge(session: str, directory: Path) -> None:
    """Delete one SESSION, running or stopped, from the data of an engine that does not run.

    Live events, backups and exported files are not touched.
    """
    with engine_storage() as storage:
        runs = storage.purge_flow(directory, session)
    click.echo(f"session {session} is deleted ({runs} runs)")


@click.command(name="import")
@click.argument("source", type=click.Path(dir_okay=False, path_type=Path))
@data_option
def import_(source: Path, directory: Path) -> None:
    """Put the session of the exported file SOURCE into the data of an engine that does not run."""
    with engine_storage() as storage:
        names = storage.import_flows(directory, source)
    click.echo(f"{directory} has now {', '.join(names)}")
