"""What a Stream request can be refused with.

StreamError
├── InvalidStreamRequestError      correct the request; repeating it cannot help
│   └── StreamMessageTooLargeError store the content elsewhere and stream a reference, or split it
├── StreamCapacityError            raise the Stream's capacity or write smaller messages
├── StreamReadTimeoutError         nothing arrived in time; read again with the same token
├── StreamsDisabledError           the engine runs without Streams; start it with the memory backend
└── StreamStoreClosedError         the engine is stopping; reconnect and read on
"""

from __future__ import annotations


class StreamError(Exception):
    """Root of every refusal of a Stream request."""


class InvalidStreamRequestError(StreamError):
    """A field of the request is missing, out of range or unreadable."""


class StreamMessageTooLargeError(InvalidStreamRequestError):
    """The serialized value is over the limit of one message."""


class StreamCapacityError(StreamError):
    """The message does not fit into what the Stream may hold."""


class StreamReadTimeoutError(StreamError):
    """No message arrived while the read waited."""


class StreamsDisabledError(StreamError):
    """The engine was started without Streams."""


class StreamStoreClosedError(StreamError):
    """The engine is stopping and answers no further reads or writes."""
