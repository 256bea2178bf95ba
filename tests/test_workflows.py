"""Every session of `noxfile.py` is run by a workflow, so that none rots unnoticed."""

import ast
import re
from pathlib import Path

import pytest

from compatibility import PYTHONS

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
NOT_IN_WORKFLOWS = {
    "tests": "`tests-on` is the same on every interpreter",
    "workflows": "`artifacts` runs it",
    "bench": "it measures, and fails for nothing",
}


def is_session(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(called) == "nox.session"


def session_name(function: ast.FunctionDef) -> str:
    """The name that a session is given, or its function's."""
    named = [
        keyword.value.value
        for decorator in function.decorator_list
        if isinstance(decorator, ast.Call) and is_session(decorator)
        for keyword in decorator.keywords
        if keyword.arg == "name" and isinstance(keyword.value, ast.Constant)
    ]
    return str(named[0]) if named else function.name


def sessions() -> dict[str, str]:
    """The sessions of `noxfile.py` with their source."""
    tree = ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {session_name(each): ast.unparse(each) for each in functions if any(map(is_session, each.decorator_list))}


def named_in(workflow: str) -> set[str]:
    """Find the sessions that a workflow names: in a list of its matrix, or as an argument of nox."""
    lists = re.findall(r"^ +session: \[(.*)\]$", workflow, flags=re.MULTILINE)
    return {name.strip() for line in lists for name in line.split(",")} | {
        *re.findall(r"--session ([a-z][\w-]*)", workflow)
    }


def in_workflows() -> set[str]:
    return {name for path in WORKFLOWS for name in named_in(path.read_text(encoding="utf-8"))}


def test_every_session_is_run_by_a_workflow() -> None:
    # Nox lets a session of several interpreters be named with one of them.
    ran = {re.sub(r"-3\.\d+$", "", name) for name in in_workflows()}

    assert {"compat", "compat-canary", "rolling", "crash"} <= sessions().keys()
    assert sessions().keys() - ran == NOT_IN_WORKFLOWS.keys()
    assert ran <= sessions().keys()
    assert "nox -s tests\n" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_the_whole_suite_is_run_on_every_interpreter() -> None:
    assert {name for name in in_workflows() if name.startswith("tests-on")} == {
        f"tests-on-{python}" for python in PYTHONS
    }


def test_what_is_too_long_for_a_change_is_run_every_week() -> None:
    workflow = (ROOT / ".github" / "workflows" / "compat.yml").read_text(encoding="utf-8")

    assert re.search(r"^    - cron: ", workflow, flags=re.MULTILINE)
    # The plan lists all cells, not only the edges, when it is the schedule that runs it.
    assert re.search(r'"\$EVENT" == schedule .*chosen=\(--session compat\)', workflow)
    _, _, weekly = workflow.partition("\n  weekly:\n")
    assert "if: github.event_name == 'schedule'" in weekly
    assert {"compat-canary", "crash", "rolling"} <= named_in(weekly)


@pytest.mark.parametrize("name", ["compat", "compat-canary"])
def test_what_tests_a_release_requires_the_column_of_the_parity_table(name: str) -> None:
    assert "'tools/compat_results.py', '--column'" in sessions()[name]


def test_the_canary_lifts_every_upper_bound() -> None:
    assert "bounded(ROOT, (*OWN, adapter.distribution))" in sessions()["compat-canary"]
