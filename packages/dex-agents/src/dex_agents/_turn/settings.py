"""A session's settings: references that a Worker resolves, never secrets."""

from dex import Context

from dex_agents._storage.limits import MAX_SETTINGS_BYTES, json_problem
from dex_agents._storage.schema import SETTINGS, find
from dex_agents.snapshot import SessionSettings, SettingsUpdate


def change_settings(context: Context, update: SettingsUpdate) -> SessionSettings:
    """Stage changed settings; a turn that runs keeps its own copy.

    The caller holds the lock of the settings.

    Raises:
        ValueError: They would be too large to travel with every Step.
    """
    values = {**(find(context, SETTINGS) or SessionSettings()).values, **update.changes}
    changed = SessionSettings(values={name: value for name, value in values.items() if value is not None})
    check_size(changed)
    SETTINGS.set(context, changed)
    return changed


def check_size(settings: SessionSettings) -> None:
    """Refuse settings that are too large to travel with every Step, or have what JSON cannot hold or be read with.

    Raises:
        ValueError: They do.
    """
    for name, value in settings.values.items():
        if (problem := json_problem(value)) is not None:
            raise ValueError(f"the setting {name!r} {problem}")
    size = settings.size_in_bytes()
    if size > MAX_SETTINGS_BYTES:
        raise ValueError(
            f"the settings would have {size} bytes, more than {MAX_SETTINGS_BYTES}: settings are names that a Worker "
            "resolves, keep what they stand for outside"
        )
