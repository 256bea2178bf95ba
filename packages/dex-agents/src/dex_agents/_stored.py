"""The base of everything that a session stores or sends.

Two code versions may serve one session during a rolling deploy, so a reader ignores fields that it does not know, and a
field that is added later must have a default. A default is for ever: documents are stored without it.
"""

from collections.abc import Mapping
from typing import ClassVar, Final, TypeVar, cast

from pydantic import BaseModel, ConfigDict
from pydantic_core import PydanticSerializationError

NOT_UNICODE: Final = (UnicodeEncodeError, PydanticSerializationError)
"""What is raised where a document with text that is not Unicode is written."""

StoredT = TypeVar("StoredT", bound="Stored")


class Stored(BaseModel):
    """An immutable JSON document; unknown fields are ignored when it is read."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    omits_defaults: ClassVar[bool] = False
    """Whether it is stored without fields that have their default: for what every turn writes, where no field inside
    tells apart what else is read (a `kind` has a default too)."""

    def stored_json(self) -> str:
        """Return the document as it is stored."""
        return self.model_dump_json(exclude_defaults=self.omits_defaults)

    def size_in_bytes(self) -> int:
        """Return how many bytes the document has as stored JSON."""
        return len(self.model_dump_json().encode())


class StoredRecord(Stored):
    """A document that a Step reads, changes and writes again.

    Fields that a newer version added go through unharmed: two code versions may write one record in turns.
    """

    model_config = ConfigDict(frozen=True, extra="allow")


def in_unicode(document: StoredT) -> StoredT:
    """Return a document with `?` in place of what UTF-8 cannot hold: lone surrogates, as of `surrogateescape`.

    It walks the whole document, so it is for one that could not be written as it is (`NOT_UNICODE`).
    """
    return type(document).model_validate(_in_unicode(document.model_dump()))


def _in_unicode(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, Mapping):
        return {_in_unicode(key): _in_unicode(item) for key, item in cast("Mapping[object, object]", value).items()}
    if isinstance(value, list | tuple):
        return [_in_unicode(item) for item in cast("list[object]", value)]
    return value
