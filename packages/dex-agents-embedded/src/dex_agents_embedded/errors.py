"""What can keep an engine from running.

```
EngineError
├── EngineInUseError    another engine has the directory: stop it, or choose another directory
├── DataFileError       engine.db cannot be used: restore a backup, or upgrade this package
├── AddressError        the address cannot be listened on: choose another one
├── TokenFileError      the token file cannot be used: name a readable file with one token a line
└── CommitFailedError   the disk refused a commit: free space or repair it, then start the engine again
```

Each class has `reason`, a stable word for programs; the text names the file or address and what to do.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

AddressReason: TypeAlias = Literal[
    "address_in_use",
    "address_denied",
    "address_not_available",
    "host_unknown",
    "address_not_allowed",
    "address_unusable",
]


class EngineError(Exception):
    """The engine cannot run.

    Attributes:
        reason: A stable word for programs.
    """

    reason: str

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(text)
        self.reason = reason


class EngineInUseError(EngineError):
    """Another engine runs on the same directory. Stop it first, or use another directory."""

    def __init__(self, text: str) -> None:
        super().__init__(text, "in_use")


class DataFileError(EngineError):
    """The data file cannot be used; it was neither changed nor replaced.

    Attributes:
        reason: `unreadable` for a damaged file or one that is not an engine's, `newer` for one that a newer version
            wrote, `not_writable` when the disk is full or read-only, `not_accessible` for a file that may be whole but
            cannot be opened for reading.
    """

    def __init__(self, text: str, reason: Literal["unreadable", "newer", "not_writable", "not_accessible"]) -> None:
        super().__init__(text, reason)


class AddressError(EngineError):
    """The engine cannot listen on the address.

    Attributes:
        reason: `address_in_use` when the port is taken, `address_denied` when this user may not take it,
            `address_not_available` when the machine has no such address, `host_unknown` when the host's name has no
            address, `address_not_allowed` for an address that is malformed, or not a loopback one without a token file,
            `address_unusable` for whatever else the system has against it.
    """

    def __init__(self, text: str, reason: AddressReason) -> None:
        super().__init__(text, reason)


class TokenFileError(EngineError):
    """The token file cannot be read or holds no usable token; the engine does not start without one then."""

    def __init__(self, text: str) -> None:
        super().__init__(text, "token_file_unusable")


class CommitFailedError(EngineError):
    """The disk refused a commit (it is full or read-only), so the engine stopped.

    Nothing that was answered is lost: the file holds the state of the last commit. Repair the disk and start again.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text, "commit_failed")
