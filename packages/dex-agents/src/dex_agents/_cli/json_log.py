"""The log as JSON, for machines that collect it."""

import json
import logging
from datetime import UTC, datetime

_STANDARD = frozenset([*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"])


class JsonFormatter(logging.Formatter):
    """Writes a record as one JSON object: time, level, logger, message, and what the caller added as `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update({name: value for name, value in vars(record).items() if name not in _STANDARD})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def log_as_json() -> None:
    """Write every record from INFO on to stderr as JSON."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
