"""What the provider was asked, in memory and in a log that survives every process."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECRET_NAMES = frozenset(
    {"authorization", "proxy-authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie", "key"}
)


@dataclass(frozen=True)
class RecordedRequest:
    """One request to the provider.

    Attributes:
        number: Number of the request, from 0, in order of arrival.
        time: When it arrived, seconds since 1970.
        path: Path without the query.
        query: Query parameters, without secrets.
        headers: Headers with names in lower case, without secrets.
        body: JSON body; empty when it was none.
        model: Model that is asked for; empty when the request was refused as malformed.
        is_streaming: Whether the answer is to be streamed.
        turn: How many answers of the model the history in the request holds.
    """

    number: int
    time: float
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    # Any: what a test looks for in a provider's JSON is the test's business.
    body: Mapping[str, Any]
    model: str
    is_streaming: bool
    turn: int


class Recorder:
    """Keeps requests in order of arrival.

    Args:
        log: File to which each request is appended as a line of JSON when it arrives; None writes no file.
    """

    def __init__(self, log: Path | None = None) -> None:
        self.requests: list[RecordedRequest] = []
        # One write a line with O_APPEND: whoever reads the file meanwhile sees whole lines.
        self._log = None if log is None else os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def record(
        self,
        *,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: Mapping[str, Any],
        model: str,
        is_streaming: bool,
        turn: int,
    ) -> RecordedRequest:
        """Keep a request and write it to the log before anything else happens to it."""
        request = RecordedRequest(
            number=len(self.requests),
            time=time.time(),
            path=path,
            query=_without_secrets(query),
            headers=_without_secrets(headers),
            body=body,
            model=model,
            is_streaming=is_streaming,
            turn=turn,
        )
        self.requests.append(request)
        if self._log is not None:
            os.write(self._log, json.dumps(dataclasses.asdict(request)).encode() + b"\n")
        return request

    def close(self) -> None:
        """Close the log."""
        if self._log is not None:
            os.close(self._log)
            self._log = None


def read_log(path: Path) -> list[RecordedRequest]:
    """Read the requests of a log that another process writes; a log that does not exist yet is empty."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    # What follows the last line end is empty, or a line that is being written.
    return [RecordedRequest(**json.loads(line)) for line in lines[:-1]]


def _without_secrets(values: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in values.items() if name.lower() not in SECRET_NAMES}
