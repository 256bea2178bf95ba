"""What a session id may be: it is the Flow ID, and a Dex Server refuses some characters in those."""

from typing import Final

from dex_agents.errors import InvalidSessionIdError

MAX_SESSION_ID_CHARACTERS: Final = 200
"""Our own bound: the id stands in every idempotency key, log line and search result."""

_RESERVED: Final = "/$:"
"""A Dex Server separates its own names with these, so it refuses them in Flow IDs."""


def check_session_id(session_id: str) -> str:
    """Return the id when a Dex Server takes it.

    Raises:
        InvalidSessionIdError: It is empty, longer than 200 characters, begins or ends with a blank, or has a
            character that is refused.
    """
    rule = _broken_rule(session_id)
    if rule is not None:
        shown = session_id if len(session_id) <= MAX_SESSION_ID_CHARACTERS else session_id[:40] + "…"
        raise InvalidSessionIdError(f"session id {shown!r}: {rule}")
    return session_id


def _broken_rule(session_id: str) -> str | None:
    if not session_id:
        return "it is empty; give each session an id of its own"
    if len(session_id) > MAX_SESSION_ID_CHARACTERS:
        return f"it has {len(session_id)} characters; at most {MAX_SESSION_ID_CHARACTERS} are allowed"
    reserved = next((character for character in session_id if character in _RESERVED), None)
    if reserved is not None:
        return f"it contains {reserved!r}; the characters / $ : are reserved by Dex, use '-' or '_' instead"
    if any(not character.isprintable() for character in session_id):
        return "it contains a control or other unprintable character; use printable ones only"
    if session_id != session_id.strip():
        return "it begins or ends with a blank; remove it"
    return None
