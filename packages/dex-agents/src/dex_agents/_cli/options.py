"""Options that several commands share."""

from pathlib import Path

import click

from dex_agents._client.address import SERVER_ADDRESS_VARIABLE
from dex_agents._serving.engine import DEFAULT_DIRECTORY

data_option = click.option(
    "--data",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_DIRECTORY,
    show_default=True,
    help="Directory of the embedded engine's file; made when it is missing.",
)

existing_data_option = click.option(
    "--data",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_DIRECTORY,
    show_default=True,
    help="Directory that has the embedded engine's file.",
)

address_option = click.option(
    "--address",
    metavar="HOST:PORT",
    help=f"The Dex Server; otherwise {SERVER_ADDRESS_VARIABLE} names it.",
)
