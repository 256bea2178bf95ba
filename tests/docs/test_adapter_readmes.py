"""Each adapter's README names what `compat/` has, and its first program runs as it does for who has the wheel alone."""

import importlib
import re
from pathlib import Path

import pytest

from compatibility import PYTHONS, Adapter, read_adapters
from readme_program import SCRIPTED, load, python_blocks

ROOT = Path(__file__).parents[2]
ADAPTERS = read_adapters(ROOT / "compat")
# ADK's own event log is the state; `tests/upgrade` has sessions of it.
WITHOUT_RECORDED_STATES = {"google-adk"}
every_adapter = pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: adapter.name)


def readme(adapter: Adapter) -> Path:
    return ROOT / "packages" / adapter.distribution / "README.md"


@every_adapter
def test_the_readme_names_exactly_the_supported_range(adapter: Adapter) -> None:
    text = readme(adapter).read_text(encoding="utf-8")
    named = re.findall(r"([\w-]+) (>=[\d.]+,<[\d.]+)", text)

    assert named[0] == (adapter.framework, adapter.supported)
    assert dict(named).items() <= {adapter.framework: adapter.supported, **adapter.parts}.items()
    # No range stands there without its name, or in another form.
    assert len(re.findall(r">=|<\d", text)) == 2 * len(named)
    assert f"Python {PYTHONS[0]} to {PYTHONS[-1]}," in text


@every_adapter
def test_the_adapters_own_refusals_name_the_supported_range(adapter: Adapter) -> None:
    private = importlib.import_module(f"{adapter.distribution.replace('-', '_')}._private")

    assert adapter.supported == private.SUPPORTED_RELEASES


@every_adapter
def test_states_were_recorded_by_exactly_the_tested_releases(adapter: Adapter) -> None:
    directory = readme(adapter).parent / "tests" / "recorded_states"
    recorded = {path.stem.removeprefix(f"{adapter.framework}-") for path in directory.glob("*")}

    tested = {pins[adapter.framework] for pins in adapter.releases}
    assert recorded == (set() if adapter.name in WITHOUT_RECORDED_STATES else tested)


@every_adapter
def test_every_readme_is_run_by_the_adapters_own_test_and_has_a_program_for_its_wheel(adapter: Adapter) -> None:
    test = readme(adapter).parent / "tests" / "test_readme.py"

    assert f'load("{adapter.name}", README, model)' in test.read_text(encoding="utf-8")
    assert adapter.name in SCRIPTED
    first, second, *_ = python_blocks(readme(adapter))
    assert "async def plain(" in first
    assert "async def durable(" in second


def test_a_readme_that_names_its_model_in_another_way_is_refused(tmp_path: Path) -> None:
    document = tmp_path / "README.md"
    document.write_text('```python\nagent = Agent(model="gpt-6")\n```\n', encoding="utf-8")

    with pytest.raises(ValueError, match="it must name its model once"):
        load("openai-agents", document, object())
