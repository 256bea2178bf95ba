"""A live feed that remembers what it was given."""

from pydantic import JsonValue


class RecordedEvents:
    """An `EventSink` that keeps everything, in order.

    Attributes:
        texts: Pieces of the answer.
        reasonings: Pieces of the model's reasoning.
        progress_reports: What running tools reported, with the provider's id of their call.
    """

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.reasonings: list[str] = []
        self.progress_reports: list[tuple[str, JsonValue]] = []

    def text(self, delta: str, *, owner: str = "") -> None:
        """Keep a piece of the answer."""
        self.texts.append(delta)

    def reasoning(self, delta: str, *, owner: str = "") -> None:
        """Keep a piece of the model's reasoning."""
        self.reasonings.append(delta)

    def progress(self, call_id: str, data: JsonValue, *, owner: str = "") -> None:
        """Keep a report of a running tool."""
        self.progress_reports.append((call_id, data))
