"""Where the SDK reads a transcript from and mirrors it to: the memory of one segment."""

from claude_agent_sdk import SessionKey, SessionStoreEntry
from claude_agent_sdk.types import SessionListSubkeysKey

from dex_agents_claude_agent_sdk._rows import Row


class TranscriptStore:
    """Gives the SDK the rows of earlier segments, and takes the rows of this one (a `SessionStore`).

    The SDK's key of a project is ignored: a session has one.

    Attributes:
        added: The new rows by subpath, in the CLI's order.
    """

    def __init__(self, rows: dict[str, list[Row]]) -> None:
        self.added: dict[str, list[Row]] = {}
        self._rows = rows
        self._known = {row["uuid"] for each in rows.values() for row in each if "uuid" in row}

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Take rows. The SDK may deliver a batch twice, so a row that has an id is taken once."""
        added = self.added.setdefault(key.get("subpath", ""), [])
        for entry in entries:
            row: Row = {**entry}
            if "uuid" in row:
                if row["uuid"] in self._known:
                    continue
                self._known.add(row["uuid"])
            added.append(row)

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return the rows of one transcript."""
        rows = self._rows.get(key.get("subpath", ""))
        return None if rows is None else [_entry(row) for row in rows]

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """Return the subpaths of subagents."""
        return [subpath for subpath in self._rows if subpath]


def _entry(row: Row) -> SessionStoreEntry:
    return {**row}  # pyright: ignore[reportReturnType]  an entry has fields that its type does not name
