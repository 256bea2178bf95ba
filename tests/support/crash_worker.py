"""The Worker of the crash tests: the Flow that `CRASH_FLOW` names, with its Steps stopping at named points."""

import os

from dex_agents._cli.target import load_flow
from support import crash_points

crash_points.install()
flow = load_flow(os.environ["CRASH_FLOW"])
