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

from compatibility import Adapter, read_adapters, read_sdk

ROOT = Path(__file__).parents[1]
VERSION = (ROOT / "VERSION").read_text(encoding="utf-8").strip()
PACKAGES = sorted(path.parent.name for path in ROOT.glob("packages/*/pyproject.toml"))
ADAPTERS = [name for name in PACKAGES if name not in ("dex-agents", "dex-agents-embedded")]
TESTED = read_adapters(ROOT / "compat")
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


def test_every_adapter_has_tested_releases() -> None:
    assert sorted(adapter.distribution for adapter in TESTED) == ADAPTERS


@pytest.mark.parametrize("adapter", TESTED, ids=lambda adapter: adapter.name)
def test_the_tested_range_is_the_declared_range_and_holds_every_tested_release(adapter: Adapter) -> None:
    declared = requirements(adapter.distribution)

    assert declared[adapter.framework] == SpecifierSet(adapter.supported)
    for pins in adapter.releases:
        # What belongs to the framework is pinned together with it, whether the adapter requires it or not.
        outside = {name: release for name, release in pins.items() if release not in declared.get(name, SpecifierSet())}
        assert outside == {}


@pytest.mark.parametrize("adapter", TESTED, ids=lambda adapter: adapter.name)
def test_the_lowest_declared_release_and_the_locked_one_are_tested(adapter: Adapter) -> None:
    releases = [Version(pins[adapter.framework]) for pins in adapter.releases]
    lowest = [Version(each.version) for each in SpecifierSet(adapter.supported) if each.operator == ">="]

    assert releases == sorted(releases)
    assert [releases[0].release[: len(lowest[0].release)]] == [each.release for each in lowest]
    assert releases[-1] == Version(version(adapter.framework))


def test_the_core_requires_exactly_the_sdk_that_the_data_names() -> None:
    pin = read_sdk(ROOT / "compat")

    assert requirements(pin.distribution)[pin.sdk] == SpecifierSet(f"=={pin.release}")
