"""`python -m dex_agents` is the `dex-agents` command."""

from dex_agents._cli import main

main(prog_name="dex-agents")
