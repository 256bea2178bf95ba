"""An object of a session's state that a process remembers."""

from pydantic import JsonValue


class KeptObject(dict[str, JsonValue]):
    """An object of a state, as a session gives it to a runner with `takes_kept_objects = True`.

    All Steps of a process get the same one as long as the process remembers it, so it must never be changed, nor handed
    to code that may change it or what is in it. Put into the next state as it is, it costs next to nothing to store.

    Attributes:
        made: For the runner: what it made of the object, so that the next Step need not make it again. None at first.
    """

    __slots__ = ("made",)

    def __init__(self, value: dict[str, JsonValue]) -> None:
        super().__init__(value)
        self.made: object = None
