"""What the repository promises about its distributions, read from its own files and the installed metadata."""

import tomllib
from importlib.metadata import metadata, requires, version
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from compatibility import PYTHONS, Adapter, read_adapters, read_sdk

ROOT = Path(__file__).parents[1]
VERSION = (ROOT / "VERSION").read_text(encoding="utf-8").strip()
PACKAGES = sorted(path.parent.name for path in ROOT.glob("packages/*/pyproject.toml"))
ADAPTERS = [name for name in PACKAGES if name not in ("dex-agents", "dex-agents-embedded")]
TESTED = read_adapters(ROOT / "compat")
# What uv writes where nobody configured another index.
PUBLIC_INDEX = "https://pypi.org/simple"
PUBLIC_FILES = "https://files.pythonhosted.org/"


def requirements(name: str) -> dict[str, SpecifierSet]:
    parsed = [Requirement(line) for line in requires(name) or []]
    return {each.name: each.specifier for each in parsed}


def ranges_of(adapter: Adapter) -> dict[str, SpecifierSet]:
    """What the data says of everything that an adapter's rows pin."""
    ranges = {adapter.framework: adapter.supported, **adapter.parts}
    return {name: SpecifierSet(range_) for name, range_ in ranges.items()}


def strange_places(lock: dict[str, Any]) -> list[str]:
    """Find the packages of a lock that come neither from the public index nor from this repository."""
    strange: list[str] = []
    for package in lock["package"]:
        source: dict[str, str] = package["source"]
        if source != {"registry": PUBLIC_INDEX} and not (len(source) == 1 and source.keys() <= {"editable", "virtual"}):
            strange.append(f"{package['name']}: {source}")
        files: list[dict[str, Any]] = [*package.get("wheels", []), *([package["sdist"]] if "sdist" in package else [])]
        strange += [f"{package['name']}: {each}" for each in files if not each.get("url", "").startswith(PUBLIC_FILES)]
    return strange


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


def test_the_lock_names_only_public_places() -> None:
    lock: dict[str, Any] = tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))

    assert len(lock["package"]) > len(PACKAGES)
    assert strange_places(lock) == []


@pytest.mark.parametrize(
    "change",
    [
        {"source": {"registry": "https://pypi.org.example.com/simple"}},
        {"source": {"registry": "../wheels"}},
        {"source": {"git": "ssh://git@example.com/one.git"}},
        {"source": {"path": "../one.whl"}},
        {"source": {"url": "https://files.pythonhosted.org/one.whl"}},
        {"sdist": {"url": "https://pypi.org/one.tar.gz"}},
        {"wheels": [{"url": "https://files.pythonhosted.org.example.com/one.whl"}]},
        {"wheels": [{"path": "one.whl"}]},
    ],
    ids=str,
)
def test_a_lock_with_another_place_is_noticed(change: dict[str, Any]) -> None:
    good = {"name": "one", "source": {"registry": PUBLIC_INDEX}, "wheels": [{"url": f"{PUBLIC_FILES}one.whl"}]}

    assert strange_places({"package": [good, {"name": "own", "source": {"editable": "packages/own"}}]}) == []
    assert len(strange_places({"package": [good, good | change]})) == 1


def test_the_workspace_names_every_package_as_its_own_source() -> None:
    root: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

    assert sorted(root["tool"]["uv"]["sources"]) == PACKAGES


def test_every_adapter_has_tested_releases() -> None:
    assert sorted(adapter.distribution for adapter in TESTED) == ADAPTERS


@pytest.mark.parametrize("adapter", TESTED, ids=lambda adapter: adapter.name)
def test_the_tested_range_is_the_declared_range_and_holds_every_tested_release(adapter: Adapter) -> None:
    declared = requirements(adapter.distribution)
    ranges = ranges_of(adapter)

    assert {name: declared[name] for name in ranges} == ranges
    for pins in adapter.releases:
        assert {name: release for name, release in pins.items() if release not in ranges[name]} == {}


@pytest.mark.parametrize("adapter", TESTED, ids=lambda adapter: adapter.name)
def test_the_first_tested_row_is_the_lower_bound_of_everything_that_is_pinned(adapter: Adapter) -> None:
    ranges = ranges_of(adapter)
    lowest = {name: [each.version for each in range_ if each.operator == ">="] for name, range_ in ranges.items()}

    assert adapter.releases[0].keys() == ranges.keys()
    for name, release in adapter.releases[0].items():
        (bound,) = lowest[name]
        if bound in adapter.unpublished:
            # A later release of the same minor: everything before it would be another row.
            assert Version(release) > Version(bound)
            assert Version(release).release[:2] == Version(bound).release[:2]
        else:
            assert Version(release) == Version(bound)
    assert {*adapter.unpublished} <= {bound for bounds in lowest.values() for bound in bounds}


@pytest.mark.parametrize("adapter", TESTED, ids=lambda adapter: adapter.name)
def test_the_tested_releases_go_from_the_oldest_to_the_locked_one(adapter: Adapter) -> None:
    releases = [Version(pins[adapter.framework]) for pins in adapter.releases]

    assert releases == sorted(releases)
    assert releases[-1] == Version(version(adapter.framework))


@pytest.mark.parametrize("adapter", TESTED, ids=lambda adapter: adapter.name)
def test_an_adapter_is_tested_on_every_supported_interpreter(adapter: Adapter) -> None:
    assert adapter.pythons == PYTHONS


@pytest.mark.parametrize("name", PACKAGES)
def test_every_distribution_declares_the_supported_interpreters(name: str) -> None:
    head = "Programming Language :: Python :: "
    declared = [line.removeprefix(head) for line in metadata(name).get_all("Classifier") or [] if line.startswith(head)]

    assert sorted(declared) == sorted(PYTHONS)
    assert metadata(name)["Requires-Python"] == f">={PYTHONS[0]}"


def test_the_core_requires_exactly_the_sdk_that_the_data_names() -> None:
    pin = read_sdk(ROOT / "compat")

    assert requirements(pin.distribution)[pin.sdk] == SpecifierSet(f"=={pin.release}")
