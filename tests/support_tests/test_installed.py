"""Only an adapter that is not there is skipped; one that is there and broken fails."""

from pathlib import Path
from typing import Any, cast

import pytest

from parity.column import COLUMNS, column_and_marks
from parity.small_agents import SMALL_AGENTS, small_agent
from support.installed import is_installed, skip_unless_installed

MOVED = "from framework_of_tomorrow import Moved\n"


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An adapter that is installed, and whose framework has moved a module away."""
    package = tmp_path / "dex_agents_broken"
    package.mkdir()
    (package / "__init__.py").write_text(MOVED, encoding="utf-8")
    (tmp_path / "column_of_the_broken.py").write_text("import dex_agents_broken\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)  # pyright: ignore[reportUnknownMemberType]
    monkeypatch.setitem(cast("dict[str, str]", COLUMNS), "broken", "column_of_the_broken:Column")
    return "broken"


def test_a_column_whose_adapter_cannot_be_imported_is_not_skipped(broken: str) -> None:
    with pytest.raises(ModuleNotFoundError, match="framework_of_tomorrow"):
        column_and_marks(broken)


def test_a_small_agent_whose_adapter_cannot_be_imported_is_not_skipped(
    broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(tool: object) -> Any:
        import dex_agents_broken  # pyright: ignore[reportMissingImports]

        return dex_agents_broken.agent(tool)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]

    monkeypatch.setitem(cast("dict[str, Any]", SMALL_AGENTS), f"dex_agents_{broken}", build)
    # A skip that is let through would skip this test too.
    with pytest.raises((ModuleNotFoundError, pytest.skip.Exception)) as raised:
        small_agent(f"dex_agents_{broken}", str)
    assert isinstance(raised.value, ModuleNotFoundError)


def test_an_adapter_that_is_not_installed_is_skipped_by_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cast("dict[str, str]", COLUMNS), "absent-one", "column_of_the_absent:Column")

    column, (mark,) = column_and_marks("absent-one")

    assert column is None
    assert mark.kwargs == {"reason": "dex_agents_absent_one is not installed"}
    with pytest.raises(pytest.skip.Exception, match="dex_agents_absent_one is not installed"):
        skip_unless_installed("dex_agents_absent_one")


@pytest.mark.parametrize("adapter", COLUMNS)
def test_every_column_belongs_to_a_package_of_its_name(adapter: str) -> None:
    package = f"dex_agents_{adapter.replace('-', '_')}"

    assert (Path(__file__).parents[2] / "packages" / package.replace("_", "-") / "src" / package).is_dir()
    assert not is_installed(f"{package}_of_another_name")
