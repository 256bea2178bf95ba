"""The layers between packages are enforced: a planted violation fails."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LANGGRAPH = "dex_agents_langgraph"
CORE, ENGINE, ADAPTER, OTHER_ADAPTER = (
    "dex_agents",
    "dex_agents_embedded",
    "dex_agents_pydantic_ai",
    "dex_agents_google_adk",
)


def lint_layers(directory: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter with the repository's contracts on a copy of the sources."""
    return subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports")), "--config", str(ROOT / "pyproject.toml"), "--no-cache"],
        env={**os.environ, "PYTHONPATH": str(directory)},
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A copy of every package's sources, found before the installed ones."""
    for package in ROOT.glob("packages/*/src/*"):
        if (package / "__init__.py").exists():
            shutil.copytree(package, tmp_path / package.name)
    return tmp_path


def test_the_sources_keep_the_layers(sources: Path) -> None:
    linted = lint_layers(sources)

    assert linted.returncode == 0, linted.stdout


@pytest.mark.parametrize(
    ("package", "planted"),
    [
        (CORE, "import pydantic_ai"),
        (CORE, "import agents"),
        ("dex_agents_openai_agents", f"import {ADAPTER}"),
        (CORE, f"import {ENGINE}"),
        (CORE, f"import {ADAPTER}"),
        (ENGINE, f"import {CORE}.tools"),
        (ADAPTER, f"import {ENGINE}"),
        (ADAPTER, "import dex"),
        (ADAPTER, f"import {OTHER_ADAPTER}"),
        (OTHER_ADAPTER, f"import {ADAPTER}"),
        (ADAPTER, f"import {CORE}._storage.schema"),
        (LANGGRAPH, f"import {ENGINE}"),
        (LANGGRAPH, f"import {ADAPTER}"),
    ],
)
def test_a_planted_violation_fails(sources: Path, package: str, planted: str) -> None:
    (sources / package / "_planted.py").write_text(f"{planted}\n", encoding="utf-8")

    linted = lint_layers(sources)

    assert linted.returncode == 1
    assert f"{package}._planted" in linted.stdout
