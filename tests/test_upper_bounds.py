"""The upper bounds that the canary lifts are all that the packages declare."""

from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from compatibility import Adapter, read_adapters
from upper_bounds import bounded

ROOT = Path(__file__).parents[1]
OWN = ("dex-agents-embedded", "dex-agents")


def capped_in_metadata(distribution: str) -> set[str]:
    """What a distribution requires so that a release far in the future does not fit, extras left out."""
    parsed = [Requirement(line) for line in requires(distribution) or []]
    return {each.name for each in parsed if each.marker is None and "99999" not in each.specifier}


@pytest.mark.parametrize("adapter", read_adapters(ROOT / "compat"), ids=lambda adapter: adapter.name)
def test_every_upper_bound_of_an_adapter_and_of_what_it_needs_is_found(adapter: Adapter) -> None:
    packages = (*OWN, adapter.distribution)
    capped = {name for package in packages for name in capped_in_metadata(package)}

    found = bounded(ROOT, packages)

    assert found == capped - {*packages}
    assert {adapter.framework, "dex-python-sdk"} <= found


def test_the_bound_of_what_is_neither_framework_nor_sdk_is_found() -> None:
    assert "mcp" in bounded(ROOT, ["dex-agents-claude-agent-sdk"])


def test_a_lower_bound_is_none(tmp_path: Path) -> None:
    package = tmp_path / "packages" / "one"
    package.mkdir(parents=True)
    (package / "pyproject.toml").write_text(
        '[project]\ndependencies = ["free>=2", "open", "same==2", "like~=2.1", "low<=3", "one==1"]\n[tool]\n',
        encoding="utf-8",
    )

    assert bounded(tmp_path, ["one"]) == {"same", "like", "low"}
