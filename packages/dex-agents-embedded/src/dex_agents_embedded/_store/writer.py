"""Group commit: statements on the event loop, only `COMMIT` on a thread.

Statements are quick and need the GIL; a thread that runs them hands it back and forth. `COMMIT` is one call that
waits for the disk without the GIL. While it runs the connection is not touched and new writes gather, which makes the
next group. Only writes that nothing follows from wait a moment for others to ride with.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future as ThreadFuture
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from dex_agents_embedded._counters import Durations
from dex_agents_embedded.errors import CommitFailedError

from .statements import ERASING, Group, Operation, add_to_group, execute_group

PATIENCE_SECONDS: Final = 0.01
"""How long writes that need not hurry wait for others, with which they cost no fsync of their own. Longer than quick
tool calls take, shorter than anybody notices."""


class Writer:
    """Writes groups of operations, one commit each.

    Args:
        connection: The file's writing connection; the writer closes it.
        path: The file, for error texts.
        on_failure: Called once, on the event loop, when a commit failed. Nothing is written afterwards.
        before_commit: Called on the commit thread before each commit; tests hold the disk with it.
        after_commit: Called there after each commit, before anybody is told of it; tests end the process with it.

    Attributes:
        commits: How many commits succeeded.
        commit_times: How long they waited for the disk.
        failure: Why writing ended; None while it works.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        path: Path,
        on_failure: Callable[[CommitFailedError], None],
        before_commit: Callable[[], None] | None = None,
        after_commit: Callable[[], None] | None = None,
    ) -> None:
        self.commits = 0
        self.commit_times = Durations()
        self.failure: CommitFailedError | None = None
        self._connection = connection
        self._path = path
        self._on_failure = on_failure
        self._before_commit = before_commit
        self._after_commit = after_commit
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="dex-engine-commit")
        self._group: Group = {}
        self._log_holds_secrets = False
        self._waiting: asyncio.Future[None] | None = None
        self._is_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._in_flight: asyncio.Future[None] | None = None

    def submit(self, operations: Iterable[Operation], *, can_wait: bool = False) -> asyncio.Future[None]:
        """Queue writes that belong into one transaction.

        Args:
            operations: The writes.
            can_wait: Nothing follows from them: they may wait `PATIENCE_SECONDS` for others, or for `hurry`.

        Returns:
            A future that is done once they are on the disk. All writes of one group share it; its callbacks run in
            the order in which they were added.

        Raises:
            CommitFailedError: An earlier commit failed.
        """
        if self.failure is not None:
            raise self.failure
        for operation in operations:
            add_to_group(self._group, operation)
        if self._waiting is None:
            self._waiting = self._loop.create_future()
        if not can_wait:
            self.hurry()
        elif not self._is_due and self._timer is None:
            self._timer = self._loop.call_later(PATIENCE_SECONDS, self.hurry)
        return self._waiting

    def hurry(self) -> None:
        """Write what is queued as soon as the disk is free."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting is not None and not self._is_due:
            self._is_due = True
            if self._in_flight is None:
                self._loop.call_soon(self._flush)

    async def settled(self) -> None:
        """Wait until everything queued so far is on the disk.

        Raises:
            CommitFailedError: A commit failed.
        """
        while (future := self._waiting or self._in_flight) is not None:
            self.hurry()
            await asyncio.shield(future)
        if self.failure is not None:
            raise self.failure

    async def close(self) -> None:
        """Write what is queued, then close the file. Closing moves the write-ahead log into the file."""
        try:
            if self.failure is None:
                await self.settled()
        finally:
            await self._loop.run_in_executor(self._thread, self._connection.close)
            self._thread.shutdown()

    def _flush(self) -> None:
        if self._in_flight is not None or not self._is_due or self.failure is not None:
            return
        self._is_due = False
        group, self._group = self._group, {}
        self._in_flight, self._waiting = self._waiting, None
        try:
            execute_group(self._connection, group)
        except Exception as error:  # noqa: BLE001 - whatever it is, memory is ahead of the disk now
            self.fail(error)
            return
        self._thread.submit(self._commit, not ERASING.isdisjoint(group)).add_done_callback(self._commit_ended)

    def _commit(self, has_erased: bool) -> None:
        if self._before_commit is not None:
            self._before_commit()
        begin = time.perf_counter()
        self._connection.execute("COMMIT")
        self.commit_times.observe(time.perf_counter() - begin)
        if self._after_commit is not None:
            self._after_commit()
        if has_erased or self._log_holds_secrets:
            # What was erased from the file is still in the log. A reader can be in the way; then the next commit tries.
            (is_busy, _, _) = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            self._log_holds_secrets = bool(is_busy)

    def _commit_ended(self, ended: ThreadFuture[None]) -> None:
        self._loop.call_soon_threadsafe(self._commit_done, ended)

    def _commit_done(self, ended: ThreadFuture[None]) -> None:
        error = ended.exception()
        if error is not None:
            self.fail(error)
            return
        self.commits += 1
        done, self._in_flight = self._in_flight, None
        if done is not None:
            done.set_result(None)
        self._flush()

    def fail(self, error: BaseException) -> CommitFailedError:
        """Memory is ahead of the disk now: end for good, whatever this group was.

        Returns:
            What everybody is told from now on.
        """
        if self.failure is not None:
            return self.failure
        text = (
            f"{self._path} could not be written ({error}), so the engine stopped; everything it acknowledged is in "
            f"the file. "
            "Free disk space or repair the disk, then start the engine again"
        )
        self.failure = CommitFailedError(text)
        for future in (self._in_flight, self._waiting):
            if future is not None:
                future.set_exception(self.failure)
                future.exception()  # nobody may be waiting for it
        self._in_flight = self._waiting = None
        if self._timer is not None:
            self._timer.cancel()
        self._on_failure(self.failure)
        return self.failure
