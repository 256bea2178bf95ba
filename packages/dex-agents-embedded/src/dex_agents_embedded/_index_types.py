"""The search keys that Workers declare when they start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import grpc
from dex.dexpb import dex_pb2 as pb

from ._names import unknown_index_type
from ._store.statements import Operation, Statement
from ._store.writer import Writer
from ._wire_errors import invalid, wire_error


class IndexTypes:
    """Index keys with their types, kept on the disk so that a restart knows them before a Worker comes.

    Args:
        writer: Writes new ones.
        stored: Those of the file.
    """

    def __init__(self, writer: Writer, stored: Mapping[str, pb.IndexType]) -> None:
        self._types = dict(stored)
        self._writer = writer

    def type_of(self, key: str) -> pb.IndexType | None:
        """Return the type of a key; None for one that nobody declared."""
        return self._types.get(key)

    def keys(self) -> Iterable[str]:
        """Return the known keys."""
        return self._types.keys()

    def config(self, attribute_name: str) -> pb.IndexConfig | None:
        """Return how an Attribute is indexed whose writer did not say; None if it is not."""
        kind = self._types.get(attribute_name)
        return None if kind is None else pb.IndexConfig(enable=True, type=kind)

    async def declare(self, declared: Mapping[str, pb.IndexType]) -> None:
        """Add keys.

        Raises:
            WireError: A type is none, or the key is known with another one, so that what is stored under it could not
                be compared any more. Nothing was added then.
        """
        for key, kind in declared.items():
            if not key:
                raise invalid("an index key must not be empty")
            unknown = unknown_index_type(f"index key {key!r}", kind)
            if unknown is not None:
                raise invalid(unknown)
            known = self._types.get(key)
            if known is not None and known != kind:
                names = pb.IndexType.Name(known), pb.IndexType.Name(kind)
                text = f"index key {key!r} has type {names[0]} already, it cannot become {names[1]}"
                raise wire_error(grpc.StatusCode.FAILED_PRECONDITION, pb.ERROR_SUB_STATUS_UNCATEGORIZED, text)
        new = {key: kind for key, kind in declared.items() if key not in self._types}
        if new:
            self._types.update(new)
            self._writer.submit(Operation(Statement.INDEX_TYPE_PUT, key, (key, int(kind))) for key, kind in new.items())
        await self._writer.settled()
