"""Names that a Dex Server takes."""

from typing import Final

from dex_agents.errors import ConfigurationError

FORBIDDEN_CHARACTERS: Final = "/$:"
"""A Dex Server refuses them in Flow IDs and type names (dex-protocol)."""


def check_flow_name(name: str) -> str:
    """Return the name of a session Flow.

    Raises:
        ConfigurationError: It is empty or has a character that a Dex Server refuses.
    """
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(f"the name of a session Flow is a {type(name).__name__}: give a text")
    found = sorted(set(name) & set(FORBIDDEN_CHARACTERS))
    if not name.strip() or found:
        why = f"contains {found}" if found else "is empty"
        raise ConfigurationError(f"the name {name!r} of a session Flow {why}: use letters, digits, `-` and `_`")
    return name
