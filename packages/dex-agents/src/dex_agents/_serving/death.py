"""The end of a part of this process that nobody stopped."""

from collections.abc import Callable

from dex_agents.errors import DexAgentsError


class Mortal:
    """A part that may end on its own, and then says why: to whoever looks, and once to whoever asked to be told."""

    def __init__(self) -> None:
        self._on_death: Callable[[DexAgentsError], None] | None = None
        self.death: DexAgentsError | None = None
        """Why it ended although nobody stopped it."""

    def on_death(self, callback: Callable[[DexAgentsError], None]) -> None:
        """Call back once when it ends although nobody stopped it."""
        self._on_death = callback
        if self.death is not None:
            callback(self.death)

    def die(self, error: DexAgentsError) -> None:
        """Note the end, and tell it."""
        self.death = error
        if self._on_death is not None:
            self._on_death(error)
