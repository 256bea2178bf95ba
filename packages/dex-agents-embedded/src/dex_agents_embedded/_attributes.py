"""A run's Attributes as they are now: those on the disk, overlaid with changes that are not there yet."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from ._hot_runs import HotRun
from ._machine.delta import AttributeChange
from ._store.loader import Loader


class Attributes:
    """Reads Attributes as serialized `Value`s by physical key (`name`, or `map/instance`)."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def get(self, hot: HotRun, key: str) -> bytes | None:
        """Return one Attribute; None if it is absent."""
        is_newer, value = hot.uncommitted_value(key)
        return value if is_newer else self._loader.attribute(hot.run.key, key)

    def all(self, hot: HotRun) -> dict[str, bytes]:
        """Return every Attribute."""
        return _overlaid(hot, self._loader.all_attributes(hot.run.key), lambda _: True)

    def count(self, hot: HotRun, changes: Mapping[str, AttributeChange]) -> None:
        """Count changed Attributes in the run's usage; to be called before the changes are overlaid."""
        usage, limits = hot.run.usage, hot.run.limits
        for key, change in changes.items():
            is_newer, uncommitted = hot.uncommitted_value(key)
            if is_newer:
                old = len(uncommitted or b"")
            else:  # of a run that is only starting nothing is stored
                old = 0 if hot.start_row is not None else self._loader.attribute_size(hot.run.key, key)
            if change.is_secret:
                usage.forget(old)  # no history keeps it
            else:
                usage.retire(old, limits)
            if change.value is not None:
                usage.add(len(change.value))

    def secrets(self, hot: HotRun) -> set[str]:
        """Return the keys of the run's hard-delete Attributes."""
        secrets = self._loader.secret_keys(hot.run.key)
        secrets.update(hot.uncommitted_secrets())
        return secrets

    def forgettable(self, hot: HotRun) -> list[str]:
        """Return the keys that a retry of the whole Flow forgets: all but those of hard-delete Attributes."""
        secrets = self.secrets(hot)
        keys = set(self._loader.attribute_keys(hot.run.key))
        for key, value in hot.uncommitted():
            (keys.discard if value is None else keys.add)(key)
        return sorted(keys - secrets)

    def selected(self, hot: HotRun, selectors: Collection[str]) -> dict[str, bytes]:
        """Return what a request carries: every ordinary Attribute, and what the selectors name.

        Args:
            hot: The run.
            selectors: `map/` for a whole AttributeMap, `map/instance` for one instance of it.
        """
        found = self._loader.ordinary_attributes(hot.run.key)
        for selector in selectors:
            map_name, _, instance = selector.partition("/")
            if not instance:
                found.update(self._loader.attribute_map(hot.run.key, map_name))
            elif (value := self._loader.attribute(hot.run.key, selector)) is not None:
                found[selector] = value
        return _overlaid(hot, found, lambda key: _is_selected(key, selectors))


def _is_selected(key: str, selectors: Collection[str]) -> bool:
    map_name, slash, _ = key.partition("/")
    return not slash or key in selectors or f"{map_name}/" in selectors


def _overlaid(hot: HotRun, found: dict[str, bytes], wanted: Callable[[str], bool]) -> dict[str, bytes]:
    for key, value in hot.uncommitted():
        if value is None:
            found.pop(key, None)
        elif wanted(key):
            found[key] = value
    return found
