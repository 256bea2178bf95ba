"""What is stored can be read by the releases before and after: it has a version, and only grows."""

import pytest
from pydantic_core import PydanticUndefined

from dex_agents._storage import schema
from dex_agents._stored import Stored
from dex_agents.snapshot import SendReceipt

DOCUMENTS: list[type[Stored]] = sorted(schema.DOCUMENTS, key=lambda document: document.__name__)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.__name__)
def test_a_document_has_a_version_and_tolerates_fields_of_later_ones(document: type[Stored]) -> None:
    version = document.model_fields["version"]
    assert version.annotation is int
    assert version.default is not PydanticUndefined
    assert document.model_config.get("extra") in ("ignore", "allow")


def test_a_field_of_a_later_release_is_ignored_when_a_document_is_read() -> None:
    receipt = SendReceipt(message_id="m-1", accepted=True)
    later = receipt.model_dump() | {"version": 2, "mood": "good"}
    assert SendReceipt.model_validate(later).model_dump() == receipt.model_dump() | {"version": 2}
