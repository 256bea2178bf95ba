"""The compatibility table of the README is the one that `compat/` makes."""

import shutil
from pathlib import Path

import pytest

from compatibility import cells, main, read_adapters

ROOT = Path(__file__).parents[1]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of what the command reads, to change."""
    shutil.copytree(ROOT / "compat", tmp_path / "compat")
    shutil.copy(ROOT / "README.md", tmp_path)
    return tmp_path


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_the_readme_has_the_table_of_the_data() -> None:
    assert main([]) == 0


def test_every_package_is_named_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")

    for path in ROOT.glob("packages/*/README.md"):
        assert f"](packages/{path.parent.name}/README.md)" in readme


def test_a_changed_range_is_refused_until_the_table_is_written(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(copy / "compat" / "pydantic-ai.toml", "<2.70", "<2.71")

    assert main([], copy) == 1
    assert "run `python tools/compatibility.py --write`" in capsys.readouterr().err
    assert main(["--write"], copy) == 0
    assert main([], copy) == 0
    assert "<2.71" in (copy / "README.md").read_text(encoding="utf-8")


def test_a_readme_without_the_marks_is_refused(copy: Path) -> None:
    change(copy / "README.md", "<!-- compatibility ends -->", "")

    with pytest.raises(ValueError, match="has no line '<!-- compatibility ends -->'"):
        main([], copy)


def test_pins_that_nobody_reads_are_refused(copy: Path) -> None:
    path = copy / "compat" / "pydantic-ai.toml"
    path.write_text(path.read_text(encoding="utf-8") + '[with."2.64.0"]\npydantic = "2.12.0"\n', encoding="utf-8")

    with pytest.raises(ValueError, match=r"pydantic-ai\.toml: has the keys .*'with'"):
        read_adapters(copy / "compat")


def test_releases_that_do_not_begin_with_their_framework_are_refused(copy: Path) -> None:
    change(copy / "compat" / "pydantic-ai.toml", '"2.64.0"', '{ pydantic = "2.12.0", pydantic-ai-slim = "2.64.0" }')

    with pytest.raises(ValueError, match="must name pydantic-ai-slim first"):
        read_adapters(copy / "compat")


def test_a_release_that_is_listed_twice_is_refused(copy: Path) -> None:
    change(copy / "compat" / "langgraph.toml", 'langgraph = "1.2.0"', 'langgraph = "1.2.12"')

    with pytest.raises(ValueError, match=r"has the cells \['langgraph-1\.2\.12-py3\.11', .*more than once"):
        read_adapters(copy / "compat")


def test_warnings_of_a_release_that_is_not_tested_are_refused(copy: Path) -> None:
    change(copy / "compat" / "google-adk.toml", '"2.9.2" = [', '"2.9.1" = [')

    with pytest.raises(ValueError, match=r"has warnings of \['2\.9\.1'\]"):
        read_adapters(copy / "compat")


def test_only_the_releases_that_warn_of_themselves_may() -> None:
    found = {cell.id: cell.warnings for cell in cells(read_adapters(ROOT / "compat"))}

    assert "ignore:BaseAgentConfig is deprecated:DeprecationWarning" in found["google-adk-2.9.2-py3.11"]
    assert {name.rpartition("-")[0] for name, warnings in found.items() if warnings} == {
        f"google-adk-{release}" for release in ("2.9.2", "2.10.0", "2.11.0", "2.12.0")
    }


def test_a_cell_is_a_release_on_an_interpreter() -> None:
    found = {cell.id: dict(cell.pins) for cell in cells(read_adapters(ROOT / "compat"))}

    assert found["pydantic-ai-2.64.0-py3.11"] == {"pydantic-ai-slim": "2.64.0"}
    assert found["langgraph-1.1.10-py3.13"]["langchain"] == "1.2.18"
