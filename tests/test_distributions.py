"""What the repository promises about its distributions, read from its own files and the installed metadata."""

import re
import tomllib
from importlib.metadata import requires, version
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

ROOT = Path(__file__).parents[1]
VERSION = (ROOT / "VERSION").read_text(encoding="utf-8").strip()
PACKAGES = sorted(path.parent.name for path in ROOT.glob("packages/*/pyproject.toml"))
ADAPTERS = [name for name in PACKAGES if name not in ("dex-agents", "dex-agents-embedded")]
# The hosts that uv writes where nobody configured another index.
PUBLIC_HOSTS = {"pypi.org", "files.pythonhosted.org"}


def requirements(name: str) -> dict[str, SpecifierSet]:
    parsed = [Requirement(line) for line in requires(name) or []]
    return {each.name: each.specifier for each in parsed}


@pytest.mark.parametrize("name", PACKAGES)
def test_every_distribution_has_the_one_version(name: str) -> None:
    assert version(name) == VERSION


@pytest.mark.parametrize("name", ADAPTERS)
def test_an_adapter_requires_the_core_at_exactly_its_own_version_and_nothing_else_of_ours(name: str) -> None:
    ours = {required: str(specifier) for required, specifier in requirements(name).items() if required in PACKAGES}

    assert ours == {"dex-agents": f"=={VERSION}"}


def test_the_core_requires_the_engine_at_exactly_its_own_version() -> None:
    ours = {required: str(each) for required, each in requirements("dex-agents").items() if required in PACKAGES}

    assert ours == {"dex-agents-embedded": f"=={VERSION}"}


def test_the_lock_names_only_public_hosts() -> None:
    hosts = set(re.findall(r"https?://([^/\"]+)", (ROOT / "uv.lock").read_text(encoding="utf-8")))

    assert hosts == PUBLIC_HOSTS


def test_the_workspace_names_every_package_as_its_own_source() -> None:
    root: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

    assert sorted(root["tool"]["uv"]["sources"]) == PACKAGES


@pytest.mark.parametrize("name", ADAPTERS)
def test_every_adapter_has_tested_releases_inside_the_range_that_it_declares(name: str) -> None:
    rows = [tomllib.loads(path.read_text(encoding="utf-8")) for path in (ROOT / "compat").glob("*.toml")]
    (row,) = (row for row in rows if row.get("distribution") == name)
    declared = requirements(name)
    assert declared[row["framework"]] == SpecifierSet(row["supported"])
    for release in row["releases"]:
        pins = {row["framework"]: release} if isinstance(release, str) else release
        assert next(iter(pins)) == row["framework"]
        for pinned, exact in pins.items():
            assert Version(exact) in declared[pinned], f"{pinned} {exact} is tested, but not in {declared[pinned]}"
