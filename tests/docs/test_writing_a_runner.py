"""The guide's program runs as it is printed."""

import importlib.util
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import cast

import pytest

from dex_agents.runner import AgentFrameworkRunner
from dex_agents.testing import check_runner
from readme_program import python_blocks

GUIDE = Path(__file__).parents[2] / "docs" / "writing-a-runner.md"


@pytest.fixture
def guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """All Python of the guide as one module, imported in an empty directory."""
    blocks = python_blocks(GUIDE)
    assert len(blocks) == 3
    path = tmp_path / "guide.py"
    path.write_text("\n".join(blocks), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    spec = importlib.util.spec_from_file_location("guide", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "guide", module)
    spec.loader.exec_module(module)
    return module


async def test_the_guides_runner_answers_in_a_durable_session(
    guide: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    main = cast("Callable[[], Awaitable[None]]", guide.main)

    await main()

    assert capsys.readouterr().out == "21 degrees in Oslo\n"


async def test_the_guides_own_test_passes(guide: ModuleType) -> None:
    test_weather = cast("Callable[[], Awaitable[None]]", guide.test_weather)

    await test_weather()


async def test_the_guides_runner_keeps_the_contract(guide: ModuleType) -> None:
    make_runner = cast("Callable[[], AgentFrameworkRunner]", guide.WeatherRunner)

    report = await check_runner(make_runner, ["Oslo", "Bergen"])

    assert report.answers == ("21 degrees in Oslo", "21 degrees in Bergen")
    assert report.cancelled > 0
