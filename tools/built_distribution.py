"""What a wheel or an sdist says about itself, read without unpacking it."""

from __future__ import annotations

import configparser
import stat
import tarfile
import zipfile
from collections import Counter
from dataclasses import dataclass
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path, PurePosixPath

from packaging.utils import canonicalize_name

from release_projects import normalized


@dataclass(frozen=True)
class Distribution:
    """A built file.

    Attributes:
        file: The file's name.
        metadata: Its `METADATA` or `PKG-INFO`.
        members: The bytes of the files in it; of an sdist, without its top directory.
        unsafe: What it holds beside plain files in their place, a line each.
        requirements: Its `Requires-Dist`, normalized.
        entry_points: A wheel's entry points by group.
    """

    file: str
    metadata: Message
    members: dict[str, bytes]
    unsafe: list[str]
    requirements: frozenset[str]
    entry_points: dict[str, dict[str, str]]

    @property
    def is_wheel(self) -> bool:
        """Whether this is a wheel and no sdist."""
        return self.file.endswith(".whl")

    @property
    def name(self) -> str:
        """The distribution."""
        return canonicalize_name(str(self.metadata["Name"]))

    @property
    def version(self) -> str:
        """Its version."""
        return str(self.metadata["Version"])

    @property
    def info(self) -> str:
        """The directory of a wheel's metadata, with a slash."""
        return f"{self.name.replace('-', '_')}-{self.version}.dist-info/"


class _CaseSensitive(configparser.RawConfigParser):
    """Reads `entry_points.txt`, whose names are case-sensitive."""

    def optionxform(self, optionstr: str) -> str:
        return optionstr


def read_distribution(path: Path) -> Distribution:
    """Read a wheel or an sdist.

    Raises:
        ValueError: The file is no archive, or holds no metadata, or more than one, or such as cannot be read.
    """
    try:
        return _read(path)
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError, configparser.Error, ValueError) as error:
        raise ValueError(f"{path.name}: {error}; build it again") from error


def _read(path: Path) -> Distribution:
    """Read a wheel or an sdist."""
    members, unsafe = _read_wheel(path) if path.suffix == ".whl" else _read_sdist(path)
    ending = ".dist-info/METADATA" if path.suffix == ".whl" else "PKG-INFO"
    found = [name for name in members if name.endswith(ending) and name.count("/") == ending.count("/")]
    if len(found) != 1:
        raise ValueError(f"has {len(found)} metadata files instead of one")
    metadata = HeaderParser().parsestr(members[found[0]].decode())
    entry_points = _CaseSensitive(delimiters="=")
    entry_points.read_string(members.get(str(PurePosixPath(found[0]).parent / "entry_points.txt"), b"").decode())
    return Distribution(
        file=path.name,
        metadata=metadata,
        members=members,
        unsafe=unsafe,
        requirements=frozenset(normalized(str(line)) for line in metadata.get_all("Requires-Dist", [])),
        entry_points={group: dict(entry_points.items(group)) for group in entry_points.sections()},
    )


def _read_wheel(path: Path) -> tuple[dict[str, bytes], list[str]]:
    """Read a wheel's plain files, and say what else it holds."""
    members: dict[str, bytes] = {}
    unsafe: list[str] = []
    with zipfile.ZipFile(path) as wheel:
        for entry in wheel.infolist():
            # A wheel written on a system without modes has none here.
            mode = stat.S_IFMT(entry.external_attr >> 16)
            unsafe += _refusal(entry.filename, plain=not entry.is_dir() and mode in (0, stat.S_IFREG))
            members[entry.filename] = b"" if entry.is_dir() else wheel.read(entry)
        unsafe += _twice([entry.filename for entry in wheel.infolist()])
    return members, unsafe


def _read_sdist(path: Path) -> tuple[dict[str, bytes], list[str]]:
    """Read an sdist's plain files without its top directory, and say what else it holds."""
    members: dict[str, bytes] = {}
    unsafe: list[str] = []
    top = path.name.removesuffix(".tar.gz") + "/"
    with tarfile.open(path, "r:gz") as sdist:
        entries = sdist.getmembers()
        for entry in entries:
            refused = _refusal(entry.name, plain=entry.isreg())
            if not refused and not entry.name.startswith(top):
                refused = [f"holds {entry.name}, which is outside of {top}"]
            unsafe += refused
            file = None if refused else sdist.extractfile(entry)
            if file is not None:
                members[entry.name.removeprefix(top)] = file.read()
        unsafe += _twice([entry.name for entry in entries])
    return members, unsafe


def _refusal(name: str, plain: bool) -> list[str]:
    """Say why an entry of an archive is refused, whoever unpacks it."""
    if "\\" in name or PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
        return [f"holds {name}, whose path leaves the archive"]
    return [] if plain else [f"holds {name}, which is no plain file"]


def _twice(names: list[str]) -> list[str]:
    """Say which entry an archive has more than once: who unpacks it gets the one or the other."""
    return [f"holds {name} {count} times" for name, count in Counter(names).items() if count > 1]
