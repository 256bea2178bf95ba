"""A directory in which the shell lines of a workflow run as on a runner, and nothing leaves the machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import workflow_stub

ROOT: Final = Path(__file__).parents[1]
# A line that waits for something is a mistake; the slowest here takes under a second.
TIMEOUT_SECONDS: Final = 60


@dataclass
class Stage:
    """Where the jobs of one workflow run.

    Attributes:
        directory: An empty directory for all of it.
        sessions: What `nox --list --json` says.
        index: The address of an index that has nothing.
        jq: The real one.
        build_outputs: What the session `build` writes to `$GITHUB_OUTPUT`.
        artifacts: By name, the directory of what a job handed to the later ones.
        calls: How the programs that stand in were called, in order.
    """

    directory: Path
    sessions: list[dict[str, Any]]
    index: str
    jq: str
    build_outputs: str
    artifacts: dict[str, Path] = field(default_factory=dict[str, Path])
    calls: list[list[str]] = field(default_factory=list[list[str]])

    def __post_init__(self) -> None:
        """Write the programs that stand in, and the repository that is checked out."""
        programs = self.directory / "programs"
        programs.mkdir()
        for name in workflow_stub.PROGRAMS:
            program = programs / name
            # They need the standard library alone, and starting without the rest of an environment takes half the time.
            program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{workflow_stub.__file__}" {name} "$@"\n')
            program.chmod(0o755)
        (self.directory / "sessions.json").write_text(json.dumps(self.sessions), encoding="utf-8")
        self.version = (ROOT / "VERSION").read_text(encoding="utf-8").strip()
        self.projects = sorted(path.parent.name for path in ROOT.glob("packages/*/pyproject.toml"))
        checkout = self.directory / "checkout"
        shutil.copytree(ROOT / "tools", checkout / "tools", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "VERSION", checkout)
        (checkout / "CHANGELOG.md").write_text(f"## {self.version}\n\n- Something.\n", encoding="utf-8")
        who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.invalid", "-c", "commit.gpgsign=false"]
        for command in (
            ["init", "--quiet"],
            ["add", "."],
            [*who, "commit", "--quiet", "--message", "Release"],
            ["update-ref", "refs/remotes/origin/main", "HEAD"],
        ):
            subprocess.run(["git", "-C", str(checkout), *command], check=True, timeout=60)

    def workspace(self) -> Path:
        """Make a runner's empty working directory."""
        workspace = self.directory / f"workspace-{len([*self.directory.glob('workspace-*')])}"
        workspace.mkdir()
        return workspace

    def use(self, step: dict[str, Any], workspace: Path) -> None:
        """Do what the lines after an action need of it.

        Raises:
            ValueError: The step hands files on, or takes some, that are not there.
        """
        action = step["uses"].partition("@")[0]
        inputs: dict[str, Any] = step.get("with", {})
        if action == "actions/checkout":
            shutil.copytree(self.directory / "checkout", workspace, dirs_exist_ok=True)
        elif action == "actions/upload-artifact":
            self._keep(inputs["name"], inputs["path"].split(), workspace)
        elif action == "actions/download-artifact":
            target = workspace / inputs.get("path", ".")
            if "name" not in inputs:
                for name, kept in self.artifacts.items():
                    shutil.copytree(kept, target / name)
            elif inputs["name"] in self.artifacts:
                shutil.copytree(self.artifacts[inputs["name"]], target, dirs_exist_ok=True)
            else:
                raise ValueError(f"no job before it hands on {inputs['name']}")

    def _keep(self, name: str, patterns: list[str], workspace: Path) -> None:
        """Keep files below the directory that all patterns have in common, as GitHub does."""
        found = {pattern: [*workspace.glob(pattern)] for pattern in patterns}
        if missing := [pattern for pattern, files in found.items() if not files]:
            raise ValueError(f"there is no {', '.join(missing)} to hand on as {name}")
        common = Path(os.path.commonpath([str(Path(pattern).parent) or "." for pattern in patterns]) or ".")
        self.artifacts[name] = self.directory / "artifacts" / name
        for file in (file for files in found.values() for file in files):
            target = self.artifacts[name] / file.relative_to(workspace / common)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, target)

    def run(self, lines: str, environment: dict[str, str], workspace: Path) -> tuple[dict[str, str], list[str]]:
        """Run a step's shell lines as a runner does.

        Returns:
            What they wrote to `$GITHUB_OUTPUT`, and what is wrong, a line each.
        """
        runner = workspace.with_name(workspace.name + "-runner")
        runner.mkdir(exist_ok=True)
        files = {name: runner / name.lower() for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "GITHUB_ENV")}
        for file in (*files.values(), runner / "calls"):
            file.write_text("")
        script = runner / "lines.sh"
        script.write_text(lines, encoding="utf-8")
        ran = subprocess.run(
            ["bash", "-e", str(script)],
            cwd=workspace,
            env={**self._environment(runner), **{name: str(file) for name, file in files.items()}, **environment},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
        )
        calls = [json.loads(line) for line in (runner / "calls").read_text().splitlines()]
        self.calls += [call["command"] for call in calls]
        found = [call["problem"] for call in calls if call["problem"]]
        if ran.returncode and not found:
            found = [f"fails with {ran.returncode}: {(ran.stderr or ran.stdout).strip()}"]
        outputs: dict[str, str] = {}
        for line in files["GITHUB_OUTPUT"].read_text().splitlines():
            name, _, value = line.partition("=")
            outputs[name] = value
            # What failed above wrote nothing; that is one fault.
            if not value and not found:
                found = [f"writes the output {line!r} without a value"]
        return outputs, found

    def _environment(self, runner: Path) -> dict[str, str]:
        """What a runner gives to all lines, and what the programs that stand in need."""
        return {
            "PATH": f"{self.directory / 'programs'}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(runner),
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_REF_NAME": f"v{self.version}",
            "GITHUB_REPOSITORY": "owner/repository",
            "RELEASE_INDEX": self.index,
            "STUB_CALLS": str(runner / "calls"),
            "STUB_SESSIONS": str(self.directory / "sessions.json"),
            "STUB_PROJECTS": json.dumps(self.projects),
            "STUB_BUILD_OUTPUTS": self.build_outputs,
            "STUB_JQ": self.jq,
        }


@contextmanager
def empty_index() -> Generator[str]:
    """Serve an index that has nothing, on this machine alone."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(404)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the base class
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
