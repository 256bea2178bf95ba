"""`dex-agents sessions`: lists sessions of all agents."""

import asyncio

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dex_agents._cli.options import address_option
from dex_agents._client.address import DEFAULT_SERVER_ADDRESS, named_server_address
from dex_agents._client.connection import Connection
from dex_agents._client.session_search import summary_of
from dex_agents._storage.schema import STATUS


@click.command()
@address_option
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Most sessions to show.")
def sessions(address: str | None, limit: int) -> None:
    """List the newest sessions of all agents."""
    table = asyncio.run(_list(named_server_address(address) or DEFAULT_SERVER_ADDRESS, limit))
    Console().print(table)


async def _list(address: str, limit: int) -> Table:
    connection = Connection([], address=address, credential=None)
    await connection.open()
    try:
        page = await connection.call(lambda: connection.client.search_flows("", limit))
    finally:
        await connection.close()
    table = Table("session", "agent", "lifecycle", "status", "user", "title", "started")
    for entry in page.flows:
        # Other Flows of the same server are none of our business.
        if STATUS.name not in entry.indexed_attributes:
            continue
        summary = summary_of(entry)
        started = summary.started_at.strftime("%Y-%m-%d %H:%M:%S")
        row = (summary.session_id, entry.flow_type, summary.lifecycle, summary.status, summary.user, summary.title)
        table.add_row(*(_plain(value) for value in row), started)
    return table


def _plain(value: str) -> Text:
    """Show what users wrote as it is: no markup, and no character that a terminal would obey."""
    return Text("".join(character if character.isprintable() else "\ufffd" for character in value))
