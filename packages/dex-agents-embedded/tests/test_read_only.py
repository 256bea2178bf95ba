"""Backups, checks and exports of data where nothing can be written, and what they say when that cannot work."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from dex_agents_embedded import DataFileError, EmbeddedEngine
from dex_agents_embedded.storage import backup, check_integrity, export_flow, import_flows
from test_migrations import FILES, recorded


@contextmanager
def nothing_written(directory: Path) -> Generator[None, None, None]:
    """Take the right to write in a directory away, also from a superuser where that one may mount file systems."""
    if os.geteuid():
        modes = {path: path.stat().st_mode for path in (directory, *directory.iterdir())}
        for path in modes:
            path.chmod(0o555 if path.is_dir() else 0o444)
        try:
            yield
        finally:
            for path, mode in modes.items():
                path.chmod(mode)
        return
    here = str(directory)
    bind = ["mount", "--bind", here, here]
    if shutil.which("mount") is None or subprocess.run(bind, capture_output=True, check=False).returncode:
        pytest.skip("a superuser who may not mount a file system can write everywhere")
    subprocess.run(["mount", "-o", "remount,bind,ro", here], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", here], check=True)


async def test_what_an_engine_has_closed_is_checked_copied_and_exported(tmp_path: Path) -> None:
    async with recorded(tmp_path / "data", 1):
        pass
    with nothing_written(tmp_path / "data"):
        assert check_integrity(tmp_path / "data") == []
        backup(tmp_path / "data", tmp_path / "backup.db")
        assert export_flow(tmp_path / "data", "waiting", tmp_path / "export.db") == 1
        with pytest.raises(DataFileError, match="cannot be written") as caught:
            await EmbeddedEngine(tmp_path / "data").start()
        assert caught.value.reason == "not_writable"
        with pytest.raises(DataFileError, match="cannot be written"):
            backup(tmp_path / "data", tmp_path / "data" / "copy.db")
    (tmp_path / "files").mkdir()
    shutil.move(tmp_path / "backup.db", tmp_path / "files")
    with nothing_written(tmp_path / "files"):
        assert "waiting" in import_flows(tmp_path / "other", tmp_path / "files" / "backup.db")


async def test_what_a_running_engine_has_only_logged_is_there_too(tmp_path: Path) -> None:
    async with recorded(tmp_path / "data", 1):
        with nothing_written(tmp_path / "data"):
            assert export_flow(tmp_path / "data", "waiting", tmp_path / "export.db") == 1
            assert check_integrity(tmp_path / "data") == []


def killed_engine(data: Path) -> None:
    """Make what a killed engine leaves: its file, and a log that is not in the file yet."""
    running = data.with_name("running")
    running.mkdir()
    shutil.copy(FILES / "schema-1.db", running / "engine.db")
    with closing(sqlite3.connect(running / "engine.db")) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("UPDATE run SET started_at = started_at + 1")
        database.commit()
        shutil.copytree(running, data)


def test_a_log_that_sqlite_cannot_read_there_is_said_to_be_that_and_no_damage(tmp_path: Path) -> None:
    data = tmp_path / "data"
    killed_engine(data)
    with nothing_written(data):
        assert check_integrity(data) == []  # with its two log files it can be read
    (data / "engine.db-shm").unlink()
    with nothing_written(data):
        for read in (
            lambda: check_integrity(data),
            lambda: backup(data, tmp_path / "backup.db"),
            lambda: export_flow(data, "waiting", tmp_path / "export.db"),
        ):
            with pytest.raises(DataFileError, match=r"-wal cannot be read .*: copy engine\.db together") as caught:
                read()
            assert caught.value.reason == "not_accessible"
    shutil.copytree(data, tmp_path / "copy")  # which the text asks for
    assert check_integrity(tmp_path / "copy") == []
    assert not (tmp_path / "backup.db").exists()


def test_damage_is_still_called_damage_there(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "engine.db").write_bytes(b"no database" * 1000)
    with nothing_written(tmp_path / "data"), pytest.raises(DataFileError, match="not a database") as caught:
        check_integrity(tmp_path / "data")
    assert caught.value.reason == "unreadable"


def test_the_file_of_an_engine_that_may_run_is_not_imported(tmp_path: Path) -> None:
    killed_engine(tmp_path / "data")
    with pytest.raises(DataFileError, match="give what an export wrote"):
        import_flows(tmp_path / "other", tmp_path / "data" / "engine.db")
    assert not (tmp_path / "other").exists()
