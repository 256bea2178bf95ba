"""Reads `compat/`: what each adapter is tested with, and the Dex SDK that all of them use.

python tools/compatibility.py           # exits with 1 when the README's table is another one
python tools/compatibility.py --write   # writes the README's table
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
PYTHONS: Final = ("3.11", "3.12", "3.13")
"""The interpreters that every package supports, oldest first."""
BEGIN: Final = "<!-- compatibility begins: made from compat/ by `python tools/compatibility.py --write` -->\n"
END: Final = "<!-- compatibility ends -->\n"


@dataclass(frozen=True)
class Adapter:
    """What one adapter is tested with: a file of `compat/` that has `releases`.

    Attributes:
        name: The file's name.
        distribution: The adapter's distribution, which is its directory in `packages/` too.
        framework: The framework's distribution.
        supported: The releases of the framework that the adapter declares.
        parts: What the adapter declares of the distributions that are pinned together with the framework.
        unpublished: Lower bounds of which the index has no release; the first that it has is tested in place of it.
        pythons: The interpreters.
        releases: The tested releases, oldest first: distributions and exact releases of them, with the framework first.
        warnings: pytest's filters for what a release of the framework warns of itself; all other warnings are errors.
    """

    name: str
    distribution: str
    framework: str
    supported: str
    parts: Mapping[str, str]
    unpublished: tuple[str, ...]
    pythons: tuple[str, ...]
    releases: tuple[Mapping[str, str], ...]
    warnings: Mapping[str, list[str]]


@dataclass(frozen=True)
class SdkPin:
    """The one release of the Dex SDK that a distribution requires: `compat/dex-sdk.toml`.

    Attributes:
        distribution: The distribution that pins it.
        sdk: The SDK's distribution.
        release: Its release.
    """

    distribution: str
    sdk: str
    release: str


@dataclass(frozen=True)
class Cell:
    """One release of one framework on one interpreter.

    Attributes:
        adapter: The adapter's name in `compat/`.
        distribution: The adapter's distribution.
        python: The interpreter.
        pins: The framework's distributions and the exact releases of them; the first one names the cell.
        warnings: pytest's filters for what this release warns of itself.
    """

    adapter: str
    distribution: str
    python: str
    pins: Mapping[str, str]
    warnings: tuple[str, ...]

    @property
    def id(self) -> str:
        """What `nox -s "compat(ID)"` calls it."""
        return f"{self.adapter}-{next(iter(self.pins.values()))}-py{self.python}"


def read_adapters(directory: Path) -> list[Adapter]:
    """Read what every adapter is tested with.

    An element of `releases` is a release of `framework`, or a table of distributions and releases that belong together.

    Raises:
        ValueError: A file has keys that nobody reads, a table that does not begin with its framework, or a cell twice.
    """
    adapters: list[Adapter] = []
    for path in sorted(directory.glob("*.toml")):
        row: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        if "sdk" in row:
            continue
        known = {"distribution", "framework", "supported", "pythons", "releases"}
        optional = {"parts", "unpublished", "warnings"}
        if set(row) - optional != known:
            raise ValueError(
                f"{path.name}: has the keys {sorted(row)}; it must have {sorted(known)}, "
                f"and may have {sorted(optional)}"
            )
        framework: str = row["framework"]
        releases: list[Mapping[str, str]] = [
            {framework: release} if isinstance(release, str) else release for release in row["releases"]
        ]
        for pins in releases:
            if next(iter(pins)) != framework:
                raise ValueError(f"{path.name}: the release {dict(pins)} must name {framework} first")
        warnings: dict[str, list[str]] = row.get("warnings", {})
        if strange := warnings.keys() - {pins[framework] for pins in releases}:
            raise ValueError(f"{path.name}: has warnings of {sorted(strange)}, which `releases` does not have")
        adapters.append(
            Adapter(
                name=path.stem,
                distribution=row["distribution"],
                framework=framework,
                supported=row["supported"],
                parts=row.get("parts", {}),
                unpublished=tuple(row.get("unpublished", ())),
                pythons=tuple(row["pythons"]),
                releases=tuple(releases),
                warnings=warnings,
            )
        )
    # A result is found by its cell's id, and names one set of pins.
    if double := sorted(cell for cell, number in Counter(each.id for each in cells(adapters)).items() if number > 1):
        raise ValueError(f"compat/ has the cells {double} more than once; keep one release and interpreter of each")
    return adapters


def read_sdk(directory: Path) -> SdkPin:
    """Read which Dex SDK the core requires."""
    return SdkPin(**tomllib.loads((directory / "dex-sdk.toml").read_text(encoding="utf-8")))


def cells(adapters: list[Adapter]) -> list[Cell]:
    """List every tested release on every interpreter."""
    return [
        Cell(
            adapter.name,
            adapter.distribution,
            python,
            pins,
            tuple(adapter.warnings.get(pins[adapter.framework], ())),
        )
        for adapter in adapters
        for pins in adapter.releases
        for python in adapter.pythons
    ]


def render(adapters: list[Adapter], sdk: SdkPin) -> str:
    """Write the README's table."""
    lines = ["| adapter | framework | declared | tested releases | Python |", "|---|---|---|---|---|"]
    for adapter in adapters:
        tested = ", ".join(pins[adapter.framework] for pins in adapter.releases)
        pythons = ", ".join(adapter.pythons)
        lines.append(
            f"| `{adapter.distribution}` | `{adapter.framework}` | `{adapter.supported}` | {tested} | {pythons} |"
        )
    lines += ["", f"`{sdk.distribution}` requires exactly `{sdk.sdk}=={sdk.release}`."]
    return "\n".join(lines) + "\n"


def replace_table(readme: str, table: str) -> str:
    """Put a table between the README's two marks.

    Raises:
        ValueError: A mark is missing.
    """
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"README.md has no line {(END if begin else BEGIN).strip()!r}; put it back around the table")
    return before + begin + table + end + after


def keep_document(path: Path, expected: str, refusal: str, *, writes: bool) -> int:
    """Compare a document with what it should be, or make it so.

    Args:
        path: The document.
        expected: What it should be.
        refusal: What is told where it is something else and is not written.
        writes: Write it.

    Returns:
        The exit code: 1 when it is something else and was not written.
    """
    if path.exists() and path.read_text(encoding="utf-8") == expected:
        return 0
    if not writes:
        print(refusal, file=sys.stderr)
        return 1
    path.write_text(expected, encoding="utf-8")
    return 0


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Run the command.

    Returns:
        The exit code: 1 when the README's table is not the one that `compat/` makes.
    """
    parser = argparse.ArgumentParser(description="Keep the README's compatibility table as compat/ says.")
    parser.add_argument("--write", action="store_true", help="write the table")
    chosen = parser.parse_args(arguments)
    compat, path = root / "compat", root / "README.md"
    expected = replace_table(path.read_text(encoding="utf-8"), render(read_adapters(compat), read_sdk(compat)))
    refusal = "README.md: the table differs from compat/; run `python tools/compatibility.py --write`"
    return keep_document(path, expected, refusal, writes=chosen.write)


if __name__ == "__main__":
    sys.exit(main())
