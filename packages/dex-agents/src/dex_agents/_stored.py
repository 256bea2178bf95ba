"""The base of everything that a session stores or sends.

Two code versions may serve one session during a rolling deploy, so a reader ignores fields that it does not know, and a
field that is added later must have a default.
"""

from pydantic import BaseModel, ConfigDict


class Stored(BaseModel):
    """An immutable JSON document; unknown fields are ignored when it is read."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    def size_in_bytes(self) -> int:
        """Return how many bytes the document has as stored JSON."""
        return len(self.model_dump_json().encode())


class StoredRecord(Stored):
    """A document that a Step reads, changes and writes again.

    Fields that a newer version added go through unharmed: two code versions may write one record in turns.
    """

    model_config = ConfigDict(frozen=True, extra="allow")
