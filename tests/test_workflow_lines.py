"""A shell line of a workflow that cannot work is noticed before a release runs it."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from workflow_jobs import Job, read_jobs
from workflow_lines import main, run_workflow
from workflow_stage import Stage, empty_index

RELEASE = Path(__file__).parents[1] / ".github" / "workflows" / "release.yml"
SESSIONS: list[dict[str, Any]] = [
    {"session": "api", "name": "api", "tags": []},
    {"session": "build", "name": "build", "tags": []},
    {"session": "smoke(dex-agents-py3.11)", "name": "smoke", "tags": ["edge"]},
    {"session": "smoke(dex-agents-py3.12)", "name": "smoke", "tags": []},
]
WORKFLOW = """
jobs:
  plan:
    outputs:
      smokes: ${{ steps.smokes.outputs.smokes }}
    steps:
      - uses: actions/checkout@main
      - run: uv run --no-project tools/release_notes.py "${GITHUB_REF_NAME#v}" > notes.md
      - id: smokes
        run: |
          uv run --locked --only-group dev nox --session smoke --list --json > sessions.json
          echo "smokes=$(jq -c '[.[].session]' sessions.json)" >> "$GITHUB_OUTPUT"
      - uses: actions/upload-artifact@main
        with:
          name: about
          path: notes.md
  smoke:
    needs: plan
    strategy:
      matrix:
        session: ${{ fromJSON(needs.plan.outputs.smokes) }}
    steps:
      - uses: actions/download-artifact@main
        with:
          name: about
          path: from-plan
      - name: Run it
        run: nox --session "$SESSION"
        env:
          SESSION: ${{ matrix.session }}
      - run: gh release create "$GITHUB_REF_NAME" --verify-tag --notes-file from-plan/notes.md
"""
needs_jq = pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not on this machine")


def run(directory: Path, workflow: str) -> int:
    (directory / "planted.yml").write_text(workflow, encoding="utf-8")
    (directory / "sessions.json").write_text(json.dumps(SESSIONS), encoding="utf-8")
    return main(["--sessions", str(directory / "sessions.json"), str(directory / "planted.yml")])


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with empty_index() as index:
        yield Stage(tmp_path, SESSIONS, index, shutil.which("jq") or "jq", "")


def step(job_name: str, word: str) -> tuple[Job, str]:
    """Find the shell lines of the release that have a word."""
    (job,) = (job for job in read_jobs(RELEASE) if job.name == job_name)
    (lines,) = (step["run"] for step in job.steps if word in step.get("run", ""))
    return job, lines


@needs_jq
def test_lines_that_work_are_run_with_each_value_that_they_can_get(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, WORKFLOW) == 0
    # Two of the plan, and two for each of the two sessions that it listed.
    assert capsys.readouterr().out == "The shell lines of 1 workflows were run, 6 steps in all.\n"


@needs_jq
@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("[.[].session]", "[.[].session", "plan, step 3: jq: fails with 3"),
        ("[.[].session]", "[.[].session.x]", "plan, step 3: jq: fails with 5"),
        ("smokes=$(jq", "other=$(jq", "plan: no line writes steps.smokes.outputs.smokes"),
        ("$(jq -c '[.[].session]' sessions.json)", "", "plan, step 3: writes the output 'smokes=' without a value"),
        ("--session smoke ", "--session smokes ", "plan, step 3: nox: there is no session 'smokes'"),
        ("--list --json", "--lists --json", "plan, step 3: nox: unrecognized arguments"),
        ("--locked", "--loked", "plan, step 3: uv: unrecognized arguments: --loked"),
        ("${GITHUB_REF_NAME#v}", "$GITHUB_REF_NAME", "plan, step 2: fails with 1: CHANGELOG.md says nothing about v"),
        ("release_notes.py", "notes.py", "plan, step 2: uv: there is no tools/notes.py to run"),
        ("$(jq -c '[.[].session]' sessions.json)", "x", "smoke: needs.plan.outputs.smokes is no JSON: "),
        ("path: notes.md", "path: other.md", "plan, step 4: there is no other.md to hand on as about"),
        ("needs: plan", "needs: []", "smoke: no job that it needs writes needs.plan.outputs.smokes"),
        ("matrix.session", "matrix.other", "smoke: nothing says what matrix.other is"),
        ("path: from-plan", "path: from", "smoke, step 3: gh: there is no from-plan/notes.md"),
        ("--verify-tag", "--verify", "smoke, step 3: gh release create: "),
        ('nox --session "$SESSION"', "mv all/* dist/", "smoke, step 2 Run it: fails with 1: mv: "),
    ],
)
def test_a_planted_fault_is_noticed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, problem: str
) -> None:
    assert old in WORKFLOW

    assert run(tmp_path, WORKFLOW.replace(old, new)) == 1
    (told,) = capsys.readouterr().err.splitlines()
    assert told.startswith(f"planted.yml: {problem}")


@pytest.mark.parametrize(
    ("new", "problem"),
    [
        ("if true; then", "syntax error: unexpected end of file"),
        ('echo "', "unexpected EOF while looking for matching"),
        ("echo ${{ github.head_ref }}", "hand github.head_ref to its lines by `env`"),
        ("echo\n        shell: python", "['shell'] would change how its lines run, which is not imitated"),
    ],
)
def test_lines_that_bash_cannot_read_are_refused_without_running_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], new: str, problem: str
) -> None:
    path = tmp_path / "planted.yml"
    path.write_text(WORKFLOW.replace('nox --session "$SESSION"', new), encoding="utf-8")

    assert main([str(path)]) == 1
    shown = capsys.readouterr().err
    assert shown.startswith("planted.yml: smoke, step 2 Run it: ")
    assert problem in shown


def test_without_jq_a_machine_says_that_nothing_was_run_and_ci_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    only_bash = tmp_path / "bin"
    only_bash.mkdir()
    (only_bash / "bash").symlink_to(shutil.which("bash") or "/bin/bash")
    monkeypatch.setenv("PATH", str(only_bash))
    monkeypatch.delenv("CI", raising=False)
    assert run(tmp_path, WORKFLOW) == 0
    assert "jq is not on this machine, so bash only read the lines" in capsys.readouterr().err

    monkeypatch.setenv("CI", "true")
    assert run(tmp_path, WORKFLOW) == 1


def test_the_workflows_here_can_be_read() -> None:
    assert main([]) == 0


@needs_jq
@pytest.mark.parametrize("prerelease", ["true", "false"])
def test_a_prerelease_is_announced_as_one(stage: Stage, prerelease: str) -> None:
    # One project, since each is published alike.
    stage.projects = ["dex-agents"]
    stage.build_outputs = f'projects=["dex-agents"]\nprerelease={prerelease}\n'

    _, found = run_workflow(read_jobs(RELEASE), stage)

    assert found == []
    (create,) = (call for call in stage.calls if call[:3] == ["gh", "release", "create"])
    assert ("--prerelease" in create) == (prerelease == "true")


def test_a_release_of_a_commit_that_is_not_on_main_is_refused(stage: Stage) -> None:
    job, lines = step("build", "merge-base")
    workspace = stage.workspace()
    stage.use(job.steps[0], workspace)
    assert stage.run(lines, {}, workspace)[1] == []

    who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.invalid", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(workspace), *who, "commit", "--quiet", "--allow-empty", "--message", "Beside main"]
    subprocess.run(command, check=True, timeout=30)

    (problem,) = stage.run(lines, {}, workspace)[1]
    assert problem.startswith("fails with 1")


def test_a_tag_that_is_not_the_version_is_refused(stage: Stage) -> None:
    job, lines = step("build", "VERSION")
    workspace = stage.workspace()
    stage.use(job.steps[0], workspace)

    assert stage.run(lines, {}, workspace)[1] == []
    assert stage.run(lines, {"GITHUB_REF_NAME": "v99.0"}, workspace)[1] != []
