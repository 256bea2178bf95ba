"""The `dex-agents` command."""

import click

from dex_agents._cli.demo import demo
from dex_agents._cli.dev import dev
from dex_agents._cli.sessions import sessions
from dex_agents._cli.storage import backup, export, import_, integrity, purge
from dex_agents._cli.worker import worker
from dex_agents.errors import DexAgentsError


class _CommandError(click.ClickException):
    exit_code = 2


class _Commands(click.Group):
    """Shows this package's errors as one line; everything else is a fault of ours and keeps its traceback."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except DexAgentsError as error:
            raise _CommandError(str(error)) from error


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="dex-agents")
def main() -> None:
    """Run the agents you already have as durable sessions on Dex."""


for _command in (dev, worker, sessions, demo, backup, integrity, export, import_, purge):
    main.add_command(_command)
