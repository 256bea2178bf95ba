"""Whether a data file is whole: SQLite's own check, and what must hold between an engine's rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from google.protobuf.message import DecodeError

from dex_agents_embedded.errors import DataFileError

from .loader import Loader
from .reading import reading
from .schema import SCHEMA_VERSION
from .tables import BY_RUN_KEY, KEYED

_MOST_PROBLEMS: Final = 100

_ORPHANS: Final = (
    *((table, "run_key") for table in BY_RUN_KEY if table != "run"),
    *((table, f"{column} >> 32") for table, column in KEYED),
)


def check_integrity(directory: Path) -> list[str]:
    """Check an engine's data file, also while the engine runs.

    Args:
        directory: The engine's directory.

    Returns:
        What is wrong, for people, at most 100 entries; empty when the file is whole.

    Raises:
        DataFileError: There is no file, or it cannot be opened: `unreadable` if it is damaged, `not_accessible` if it
            may be whole.
    """
    try:
        with reading(directory) as connection:
            # One read transaction, so that an engine that runs does not change what is compared.
            connection.execute("BEGIN")
            problems: list[str] = []
            for problem in _problems(connection):
                problems.append(problem)
                if len(problems) >= _MOST_PROBLEMS:
                    break
            return problems
    except sqlite3.DatabaseError as error:
        return [f"SQLite cannot read the file: {error}"]


def _problems(connection: sqlite3.Connection) -> Iterator[str]:
    for (verdict,) in connection.execute(f"PRAGMA integrity_check({_MOST_PROBLEMS})"):
        if verdict != "ok":
            yield f"SQLite: {verdict}"
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version != SCHEMA_VERSION:
        return  # rows of an earlier version are brought forward when an engine starts
    for table, run_key in _ORPHANS:
        sql = (
            f"SELECT count(*) FROM {table} WHERE {run_key} NOT IN (SELECT run_key FROM run)"  # noqa: S608 - fixed parts
            f" AND {run_key} NOT IN (SELECT run_key FROM purge)"
        )
        (count,) = connection.execute(sql).fetchone()
        if count:
            yield f"{count} rows of table {table} belong to no Flow run"
    yield from _unreadable_runs(connection)


def _unreadable_runs(connection: sqlite3.Connection) -> Iterator[str]:
    loader = Loader(connection)
    for run_key, flow_id, run_id in connection.execute("SELECT run_key, flow_id, run_id FROM run ORDER BY run_key"):
        try:
            run = loader.load(run_key)
            loader.start_request(run_key)
        except (DecodeError, ValueError, LookupError, DataFileError) as error:
            yield f"run {run_id} of Flow {flow_id} cannot be read: {type(error).__name__}: {error}"
            continue
        if not run.is_running and run.steps:
            yield f"run {run_id} of Flow {flow_id} is closed and has {len(run.steps)} unfinished Steps"
        if any(step.number > run.step_sequence for step in run.steps.values()):
            yield f"run {run_id} of Flow {flow_id} has a Step from after its last one"
