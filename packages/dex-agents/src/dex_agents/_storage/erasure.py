"""What of a session is deleted when it is purged, in stages that each load less than one Step can receive.

Names are enough for a deletion; what cannot be named without looking is loaded.
"""

from typing import Any, Final

from dex import AttributeMap, Context

from dex_agents._storage import schema
from dex_agents._storage.attachment_documents import AttachmentIndex, piece_name
from dex_agents._storage.message_log import message_key
from dex_agents._storage.records import MessageIndex, SessionRecord
from dex_agents._turn_ids import turn_id_of
from dex_agents.snapshot import SessionSettings

STAGES: Final[tuple[tuple[AttributeMap[Any], ...], ...]] = (
    (schema.MESSAGES, schema.SUMMARIES),
    (schema.RUN_STATE,),
    (schema.TOOL_CALLS, schema.INTERRUPTS),
    (schema.UNSETTLED_CALLS, schema.OUTCOME_REPORTS),
    (schema.MESSAGE_TURNS, schema.MESSAGE_DIGESTS, schema.TURN_ENDS, schema.TURN_PARTS),
)
"""Maps that are deleted one stage after the other."""


def erase(context: Context, stage: int, remembered_results: int) -> None:
    """Stage the deletion of everything that belongs to a stage, whose maps are loaded.

    Args:
        context: The Step.
        stage: Its place in `STAGES`.
        remembered_results: So many turns' results may be there.
    """
    for each in STAGES[stage]:
        for key in each.get_all_instance_keys(context):
            each.delete(context, key)
    if stage == 0:
        index = schema.find(context, schema.MESSAGE_INDEX) or MessageIndex()
        for place in index.chunks:
            schema.MESSAGE_CHUNKS.delete(context, message_key(place.first_sequence))
        record = schema.find(context, schema.SESSION) or SessionRecord()
        for number in range(max(1, record.turn_number - remembered_results), record.turn_number + 1):
            schema.TURN_RESULTS.delete(context, turn_id_of(number))


def erase_mail(context: Context) -> None:
    """Stage the deletion of what steers a turn; needs the Channel loaded."""
    for mail in schema.TURN_MAIL.pending_messages(context):
        schema.TURN_MAIL.delete(context, mail.message_id)


def erase_rest(context: Context) -> None:
    """Stage that the session is as empty as a new one, and belongs to nobody; holds the attachments' lock."""
    schema.SESSION.set(context, SessionRecord())
    schema.MESSAGE_INDEX.set(context, MessageIndex())
    schema.SETTINGS.set(context, SessionSettings())
    index = schema.find(context, schema.ATTACHMENT_INDEX)
    if index is not None:
        for entry in index.entries:
            for number in range(entry.attachment.pieces):
                schema.ATTACHMENTS.delete(context, piece_name(entry.attachment.key, number))
        schema.ATTACHMENT_INDEX.set(context, AttachmentIndex())
    schema.TITLE.set(context, "")
    schema.USER.set(context, "")
