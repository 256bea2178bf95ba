"""The jobs of GitHub workflows, as far as their shell lines need them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import yaml

# What a step with shell lines may say. Anything else would change how they run, and is not imitated.
STEP_KEYS = frozenset({"name", "id", "run", "env", "if"})
EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")


@dataclass(frozen=True)
class Job:
    """One job of a workflow.

    Attributes:
        workflow: The workflow's file name.
        name: The job's key.
        steps: Its steps, as they are written.
        needs: The jobs before it.
        outputs: Of each output, the expression that says where it comes from.
        environment: The `env` of the job and of its workflow.
        matrix: What the matrix lists, or the expression of it.
    """

    workflow: str
    name: str
    steps: list[dict[str, Any]]
    needs: list[str]
    outputs: dict[str, str]
    environment: dict[str, str]
    matrix: dict[str, Any]

    def title(self, number: int) -> str:
        """Name a step for people: its workflow, job, position from 1 and name."""
        return f"{self.workflow}: {self.name}, step {number} {self.steps[number - 1].get('name', '')}".rstrip()

    def expressions(self) -> list[str]:
        """List the expressions in the environment of the shell lines, each once."""
        written = [self.environment, *(step.get("env", {}) for step in self.steps if "run" in step)]
        found = [name for each in written for value in each.values() for name in EXPRESSION.findall(str(value))]
        return list(dict.fromkeys(found))


def read_jobs(path: Path) -> list[Job]:
    """Read the jobs of a workflow in the order in which they are written."""
    data: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    jobs: list[Job] = []
    for name, job in data["jobs"].items():
        needs = job.get("needs", [])
        jobs.append(
            Job(
                workflow=path.name,
                name=name,
                steps=job.get("steps", []),
                needs=[needs] if isinstance(needs, str) else needs,
                outputs=job.get("outputs", {}),
                environment={**data.get("env", {}), **job.get("env", {})},
                matrix=job.get("strategy", {}).get("matrix", {}),
            )
        )
    return jobs


def syntax_problems(jobs: list[Job]) -> list[str]:
    """Say which shell lines bash cannot read, or nobody can run elsewhere.

    An expression in a shell line is replaced before bash sees it, whatever is in it: values come in by `env`.
    """
    bash = shutil.which("bash") or "bash"
    found: list[str] = []
    for job in jobs:
        for number, step in enumerate(job.steps, start=1):
            if "run" not in step:
                continue
            title = job.title(number)
            if expressions := EXPRESSION.findall(step["run"]):
                found.append(f"{title}: hand {', '.join(expressions)} to its lines by `env`")
            if unknown := step.keys() - STEP_KEYS:
                found.append(f"{title}: {sorted(unknown)} would change how its lines run, which is not imitated")
            checked = subprocess.run([bash, "-n"], input=step["run"], capture_output=True, text=True, timeout=10)
            if checked.returncode:
                found.append(f"{title}: {checked.stderr.strip()}")
    return found


def environments(job: Job, outputs: dict[str, list[str]], given: dict[str, list[str]]) -> list[dict[str, str]]:
    """List the values that the expressions of a job's environment can have together.

    Args:
        job: The job.
        outputs: By `needs.JOB.outputs.NAME`, what the jobs before it wrote.
        given: By expression, the values of what GitHub gives.

    Returns:
        Each combination of values, by expression.

    Raises:
        ValueError: An expression has no value here.
    """
    names = job.expressions()
    # GitHub gives a job the outputs of those that it names.
    needed = {name: values for name, values in outputs.items() if name.split(".")[1] in job.needs}
    values = [_values(job, name, {**needed, **given}) for name in names]
    return [dict(zip(names, chosen, strict=True)) for chosen in product(*values)]


def _values(job: Job, expression: str, known: dict[str, list[str]]) -> list[str]:
    """List the values of one expression."""
    if expression in known:
        return known[expression]
    first, _, rest = expression.partition(".")
    name, _, field = rest.partition(".")
    if first != "matrix" or name not in job.matrix:
        raise ValueError(
            f"{job.workflow}: {job.name}: nothing says what {expression} is; write it in a job that it needs"
        )
    listed: list[Any] = job.matrix[name] if isinstance(job.matrix[name], list) else []
    if not listed:
        (inner,) = EXPRESSION.findall(job.matrix[name])
        source = inner.removeprefix("fromJSON(").removesuffix(")")
        if source not in known:
            raise ValueError(f"{job.workflow}: {job.name}: no job that it needs writes {source}")
        try:
            listed = [value for text in known[source] for value in json.loads(text)]
        except json.JSONDecodeError as error:
            raise ValueError(f"{job.workflow}: {job.name}: {source} is no JSON: {error}") from error
    return list(dict.fromkeys(str(value[field] if field else value) for value in listed))


def substituted(environment: dict[str, Any], values: dict[str, str]) -> dict[str, str]:
    """Put the values of expressions into an environment."""
    return {name: EXPRESSION.sub(lambda found: values[found[1]], str(value)) for name, value in environment.items()}
