"""A change that breaks users of the last release is refused, unless somebody accepted it and said why."""

import subprocess
from pathlib import Path

import pytest

from check_api import breaks, last_release, main

OLD = '''"""Doc."""


def greet(name: str, polite: bool = True) -> str:
    return name


def _hidden(a: int) -> int:
    return a
'''
OVERLOADED = '''"""Doc."""

from typing import overload


class Session:
    @overload
    def ask(self, question: str) -> str: ...
    @overload
    def ask(self, question: str, *, answer: type[int]) -> int: ...
    def ask(self, question, *, answer=str):
        return answer(question)
'''
PYPROJECT = """[project]
name = "some-agents"
optional-dependencies.metrics = ["prometheus-client"]
optional-dependencies.prices = []

[project.scripts]
some-agents = "some_agents:greet"
greet = "some_agents:greet"
"""
WAIVER = '[[waiver]]\npath = "{path}"\nkind = "{kind}"\nreason = "{reason}"\n'


def git(root: Path, *arguments: str) -> None:
    who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.invalid", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(root), *who, *arguments], check=True, capture_output=True, timeout=30)


def commit(root: Path, source: str) -> None:
    path = root / "packages" / "some-agents" / "src" / "some_agents" / "__init__.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source, encoding="utf-8")
    git(root, "add", ".")
    git(root, "commit", "--allow-empty", "-m", "Change")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one release, and nothing after it."""
    git(tmp_path, "init")
    commit(tmp_path, OLD)
    git(tmp_path, "tag", "v0.1.0")
    return tmp_path


def test_without_a_release_the_command_says_that_nothing_was_checked(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([], repository) == 0
    assert "nothing was checked" in capsys.readouterr().out


def test_a_removed_parameter_is_refused(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commit(repository, OLD.replace(", polite: bool = True", ""))

    assert main([], repository) == 1
    shown = capsys.readouterr().err
    assert "greet(polite): Parameter was removed" in shown
    assert "These break users of v0.1.0" in shown


def test_the_tag_of_the_release_itself_is_not_what_it_is_compared_with(repository: Path) -> None:
    commit(repository, OLD.replace("def greet", "def welcome"))
    git(repository, "tag", "v0.2.0")

    assert main([], repository) == 1


def test_private_and_new_names_may_change(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commit(repository, OLD.replace("_hidden(a: int)", "_hidden(b: int)") + "\ndef new() -> None:\n    return None\n")

    assert main([], repository) == 0
    assert capsys.readouterr().out == "Nothing breaks users of v0.1.0, waivers aside.\n"


def test_an_accepted_break_passes_until_it_is_no_longer_one(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commit(repository, OLD.replace("def greet", "def welcome"))
    (found,) = breaks(repository, "v0.1.0")
    waiver = WAIVER.format(path=found.path, kind=found.kind, reason="It was misnamed.")
    (repository / "api-waivers.toml").write_text(waiver, encoding="utf-8")
    assert main([], repository) == 0

    commit(repository, OLD)
    assert main([], repository) == 1
    assert f"{found.path}: '{found.kind}' did not happen; remove it" in capsys.readouterr().err


def test_a_waiver_for_one_parameter_is_none_for_another(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    waiver = WAIVER.format(
        path="some_agents.greet(polite)", kind="Parameter was removed", reason="Never had an effect."
    )
    (repository / "api-waivers.toml").write_text(waiver, encoding="utf-8")
    commit(repository, OLD.replace("name: str, polite: bool = True", ""))

    assert main([], repository) == 1
    shown = capsys.readouterr().err
    assert "greet(name): Parameter was removed" in shown
    assert "greet(polite)" not in shown


def test_a_waiver_without_a_reason_is_refused(repository: Path) -> None:
    commit(repository, OLD)
    waiver = WAIVER.format(path="some_agents.greet", kind="Public object was removed", reason=" ")
    (repository / "api-waivers.toml").write_text(waiver, encoding="utf-8")

    with pytest.raises(ValueError, match="must have a path, a kind and a reason"):
        main([], repository)


def test_a_removed_package_is_refused(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git(repository, "rm", "-r", "packages")
    git(repository, "commit", "-m", "Remove it")

    assert main([], repository) == 1
    assert "some_agents: Package was removed" in capsys.readouterr().err


def test_the_last_release_is_the_highest_version_and_no_prerelease(repository: Path) -> None:
    for tag in ("v0.2.0rc1", "v0.2.0", "v0.10.0", "v0.11.0.dev3", "v1-latest"):
        commit(repository, OLD)
        git(repository, "tag", tag)
    commit(repository, OLD)

    assert last_release(repository) == "v0.10.0"


def test_prereleases_alone_are_no_release_to_compare_with(tmp_path: Path) -> None:
    git(tmp_path, "init")
    commit(tmp_path, OLD)
    git(tmp_path, "tag", "v0.1.0rc1")
    commit(tmp_path, OLD)

    assert last_release(tmp_path) is None


def test_a_removed_extra_and_a_removed_script_are_refused(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pyproject = repository / "packages" / "some-agents" / "pyproject.toml"
    pyproject.write_text(PYPROJECT, encoding="utf-8")
    commit(repository, OLD)
    git(repository, "tag", "v0.2.0")
    kept = [line for line in PYPROJECT.splitlines() if not line.startswith(("greet", "optional-dependencies.prices"))]
    pyproject.write_text("\n".join(kept), encoding="utf-8")
    commit(repository, OLD)

    assert main([], repository) == 1
    assert capsys.readouterr().err.splitlines()[:2] == [
        "some-agents:greet: Script was removed",
        "some-agents[prices]: Extra was removed",
    ]


@pytest.mark.parametrize(
    ("old", "new", "gone"),
    [
        ("answer: type[int])", "answer: type[bool])", "self, question: str, answer: type[int]"),
        ("answer: type[int])", "kind: type[int])", "self, question: str, answer: type[int]"),
        ("    @overload\n    def ask(self, question: str) -> str: ...\n", "", "self, question: str"),
    ],
)
def test_a_changed_overload_is_refused(
    repository: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, gone: str
) -> None:
    commit(repository, OVERLOADED)
    git(repository, "tag", "v0.2.0")
    assert old in OVERLOADED
    commit(repository, OVERLOADED.replace(old, new))

    assert main([], repository) == 1
    shown = capsys.readouterr().err
    assert f"some_agents.Session.ask({gone}): Overload was removed or changed" in shown


def test_an_overload_may_take_more_and_move(repository: Path) -> None:
    commit(repository, OVERLOADED)
    git(repository, "tag", "v0.2.0")
    commit(repository, OVERLOADED.replace("question: str)", "question: str, *, polite: bool = True)"))

    assert main([], repository) == 0
