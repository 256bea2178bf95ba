"""Run every shell line of the workflows on this machine.

    python tools/workflow_lines.py [--sessions FILE] [WORKFLOW ...]

Bash reads every line. With `--sessions`, a file with what `nox --list --json` says of all sessions, every line is also
run, once for each value that its matrix, its event and the jobs before it can give it: in a scratch directory, with
programs that stand in for `uv`, `nox` and `gh` (see `workflow_stub.py`), the real `jq`, and what each job hands to the
next. What nox and uv do is checked by running the sessions themselves; the actions are not run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from workflow_jobs import EXPRESSION, Job, environments, read_jobs, substituted, syntax_problems
from workflow_stage import ROOT, Stage, empty_index

# What GitHub gives: by expression, the values with which lines are run.
GIVEN: Final = {
    "github.event_name": ["push", "pull_request", "schedule", "workflow_dispatch"],
    "github.token": ["token"],
    "github.repository": ["owner/repository"],
}


def run_workflow(jobs: list[Job], stage: Stage) -> tuple[int, list[str]]:
    """Run the shell lines of a workflow, job after job.

    Returns:
        How many times a step's lines were run, and what is wrong, a line each.
    """
    count, found = 0, list[str]()
    outputs: dict[str, list[str]] = {}
    failed: set[str] = set()
    for job in jobs:
        if failed.intersection(job.needs):
            # As on GitHub; what it lacks now is no fault of its own.
            failed.add(job.name)
            continue
        try:
            combinations = environments(job, outputs, GIVEN)
        except ValueError as error:
            found.append(str(error))
            failed.add(job.name)
            continue
        for values in combinations:
            wrote, problems = _run_job(job, values, stage)
            count += sum("run" in step for step in job.steps)
            for name, source in job.outputs.items() if not problems else ():
                (expression,) = EXPRESSION.findall(source)
                if expression in wrote:
                    outputs.setdefault(f"needs.{job.name}.outputs.{name}", []).append(wrote[expression])
                else:
                    problems.append(f"{job.workflow}: {job.name}: no line writes {expression}")
            found += problems
            if problems:
                failed.add(job.name)
    return count, list(dict.fromkeys(found))


def _run_job(job: Job, values: dict[str, str], stage: Stage) -> tuple[dict[str, str], list[str]]:
    """Run a job's steps in order, up to the first that fails; outputs are named `steps.ID.outputs.NAME`."""
    workspace = stage.workspace()
    wrote: dict[str, str] = {}
    for number, step in enumerate(job.steps, start=1):
        if "run" in step:
            environment = substituted({**job.environment, **step.get("env", {})}, values)
            outputs, problems = stage.run(step["run"], environment, workspace)
            wrote |= {f"steps.{step.get('id')}.outputs.{name}": value for name, value in outputs.items()}
        else:
            problems = list[str]()
            try:
                stage.use(step, workspace)
            except ValueError as error:
                problems = [str(error)]
        if problems:
            return wrote, [f"{job.title(number)}: {problem}" for problem in problems]
    return wrote, []


def run_all(workflows: list[list[Job]], sessions: list[dict[str, Any]], jq: str) -> tuple[int, list[str]]:
    """Run the shell lines of all workflows, for a release and for a prerelease."""
    count, found = 0, list[str]()
    for jobs in workflows:
        for prerelease in ("false", "true"):
            with tempfile.TemporaryDirectory() as directory, empty_index() as index:
                stage = Stage(Path(directory), sessions, index, jq, "")
                stage.build_outputs = f"projects={json.dumps(stage.projects)}\nprerelease={prerelease}\n"
                ran, problems = run_workflow(jobs, stage)
            count += ran
            found += problems
            if not any("prerelease" in output for job in jobs for output in job.outputs):
                break
    return count, list(dict.fromkeys(found))


def main(arguments: list[str] | None = None) -> int:
    """Run the command.

    Returns:
        The exit code: 1 when a line cannot be read, or fails.
    """
    parser = argparse.ArgumentParser(description="Run every shell line of the workflows on this machine.")
    parser.add_argument("workflows", nargs="*", type=Path, help="(default: all)")
    parser.add_argument("--sessions", type=Path, help="what `nox --list --json` says; without it bash only reads")
    chosen = parser.parse_args(arguments)
    paths = chosen.workflows or sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    workflows = [read_jobs(path) for path in paths]
    found = [problem for jobs in workflows for problem in syntax_problems(jobs)]
    jq = shutil.which("jq")
    if not found and chosen.sessions is not None:
        if jq is not None:
            sessions = json.loads(chosen.sessions.read_text(encoding="utf-8"))
            count, found = run_all(workflows, sessions, jq)
            print(f"The shell lines of {len(paths)} workflows were run, {count} steps in all.")
        elif os.environ.get("CI"):
            found = ["jq is not on this machine, and the lines need it"]
        else:
            print(
                "jq is not on this machine, so bash only read the lines; the workflow `ci` runs them", file=sys.stderr
            )
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
