"""Refuse an upload where the index has other files of the same release.

    python tools/compare_with_index.py dist [--index URL]

An upload that broke off is finished by running it again, and files that the index has are skipped. When what is to be
uploaded was built anew in between, from a tag that moved, users would get half of each build. Needs the standard
library alone.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

INDEX: Final = "https://pypi.org"
# The environment can name another index, for a rehearsal.
INDEX_VARIABLE: Final = "RELEASE_INDEX"
TIMEOUT_SECONDS: Final = 30
# The description of a release is its README and some lines a file; ours take under 0.1 MB.
LARGEST_ANSWER: Final = 10_000_000


def read_release(index: str, project: str, version: str) -> dict[str, str]:
    """Ask an index which files it has of a release.

    Args:
        index: The address of an index with PyPI's JSON API, without a path.
        project: The distribution.
        version: Its version.

    Returns:
        The SHA-256 of each file, in hexadecimal digits; empty when the index does not know the release.

    Raises:
        ValueError: The address is none of HTTP, or the answer is too large.
        OSError: The index cannot be reached or answers with an error.
    """
    if urlsplit(index).scheme not in ("http", "https"):
        raise ValueError(f"the index {index} must have an address that begins with https://")
    address = f"{index.rstrip('/')}/pypi/{project}/{version}/json"
    try:
        with urlopen(address, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310 - the scheme is checked above
            text = answer.read(LARGEST_ANSWER + 1)
    except HTTPError as error:
        if error.code == 404:
            return {}
        raise
    if len(text) > LARGEST_ANSWER:
        raise ValueError(f"{address} answers with more than {LARGEST_ANSWER} bytes")
    data: dict[str, Any] = json.loads(text)
    return {str(file["filename"]): str(file["digests"]["sha256"]) for file in data["urls"]}


def release_of(file: str) -> tuple[str, str]:
    """Read the distribution and the version from a file's name.

    Raises:
        ValueError: The file is neither a wheel nor an sdist.
    """
    named = re.fullmatch(r"([A-Za-z0-9_.]+)-([^-]+)(?:-[^-]+-[^-]+-[^-]+\.whl|\.tar\.gz)", file)
    if named is None:
        raise ValueError(f"{file} is neither a wheel nor an sdist")
    return re.sub(r"[-_.]+", "-", named[1]).lower(), named[2]


def differences(dist: Path, index: str) -> list[str]:
    """Say which files the index has of the releases in a directory that are not those of the directory.

    Raises:
        ValueError: The directory has no distribution, or something else.
        OSError: The index cannot be reached or answers with an error.
    """
    releases: dict[tuple[str, str], dict[str, str]] = {}
    for path in sorted(dist.iterdir()):
        releases.setdefault(release_of(path.name), {})[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    if not releases:
        raise ValueError(f"{dist} has no distributions")
    found: list[str] = []
    for (project, version), built in releases.items():
        for file, digest in sorted(read_release(index, project, version).items()):
            if file not in built:
                found.append(f"{file}: the index has it, and this build does not")
            elif built[file] != digest:
                found.append(f"{file}: the index has it with the SHA-256 {digest}, this build has {built[file]}")
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run the command.

    Returns:
        The exit code: 1 when the index has another build.
    """
    parser = argparse.ArgumentParser(description="Compare distributions with what an index has of their releases.")
    parser.add_argument("dist", type=Path, help="the directory of wheels and sdists")
    parser.add_argument("--index", default=os.environ.get(INDEX_VARIABLE) or INDEX, help=f"(default: {INDEX})")
    chosen = parser.parse_args(arguments)
    try:
        found = differences(chosen.dist, chosen.index)
    except (OSError, ValueError, KeyError) as error:
        print(f"{chosen.index}: nothing could be compared: {error}", file=sys.stderr)
        return 1
    for problem in found:
        print(problem, file=sys.stderr)
    if found:
        print("The tag was built again; publish the next version instead.", file=sys.stderr)
        return 1
    print(f"{chosen.index} has no other files of these releases.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
