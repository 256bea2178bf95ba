"""Which tables hold the rows of a run, for what is done with all of them; who adds a table names it here."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Final

from dex_agents_embedded.errors import DataFileError

PER_RUN: Final = ("run", "run_state", "run_usage")
"""Tables with one row a run, by `run_key`."""

NUMBERED: Final = (("attribute", "attribute_row"), ("indexed_attribute", "indexed_row"))
"""Tables with any number of rows a run, by `run_key`, and their column that only counts rows."""

BY_RUN_KEY: Final = (*PER_RUN, *(table for table, _ in NUMBERED))
"""All tables that have a column `run_key`."""

KEYED: Final = (
    ("step", "step_key"),
    ("step_heartbeat", "step_key"),
    ("channel_message", "message_key"),
    ("replaced_bytes", "bucket_key"),
    ("outside_write", "write_key"),
)
"""Tables with any number of rows a run, and the column whose upper half is the run's key."""

_WITH_SUB_FLOWS: Final = """
    WITH RECURSIVE wanted (flow_id) AS (
        SELECT ? UNION SELECT run.flow_id FROM run JOIN wanted ON run.parent_flow_id = wanted.flow_id)
    SELECT run_key FROM run JOIN wanted USING (flow_id) ORDER BY run_key"""


def runs_of_flow(connection: sqlite3.Connection, flow_id: str, directory: Path) -> list[int]:
    """Find all runs of a Flow and of its sub-Flows, oldest first.

    Args:
        connection: A data file of this version.
        flow_id: The Flow.
        directory: The engine's directory, for the error.

    Raises:
        DataFileError: There is no such Flow.
    """
    run_keys = [run_key for (run_key,) in connection.execute(_WITH_SUB_FLOWS, (flow_id,))]
    if not run_keys:
        raise DataFileError(f"there is no session or other Flow {flow_id!r} in {directory}", "unreadable")
    return run_keys
