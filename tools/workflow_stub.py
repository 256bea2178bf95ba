"""Stands in for a program while the shell lines of the workflows run: `python tools/workflow_stub.py PROGRAM ...`.

`uv` and `nox` check what they are asked for and do as little of it as the lines after it need; `gh` checks its options
and that the files are there; `jq` is the real one, watched, since a shell goes on when a substitution fails. What was
asked for is appended to the file that `STUB_CALLS` names, and what is wrong with it makes the program fail.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn


class Parser(argparse.ArgumentParser):
    """A parser whose errors are told to who runs the lines."""

    def error(self, message: str) -> NoReturn:
        """Refuse arguments."""
        raise ValueError(f"{self.prog}: {message}")


def uv(arguments: list[str]) -> int:
    """Run a command in an environment: nox stands in, a program of `tools/` is run."""
    parser = Parser(prog="uv", allow_abbrev=False)
    run = parser.add_subparsers(required=True).add_parser("run", allow_abbrev=False)
    run.add_argument("--locked", action="store_true")
    run.add_argument("--no-project", action="store_true")
    run.add_argument("--only-group", choices=["dev"])
    run.add_argument("command")
    run.add_argument("rest", nargs=argparse.REMAINDER)
    chosen = parser.parse_args(arguments)
    if chosen.command == "nox":
        return nox(chosen.rest)
    if not Path(chosen.command).is_file():
        raise ValueError(f"uv: there is no {chosen.command} to run")
    return subprocess.run([sys.executable, chosen.command, *chosen.rest], check=False, timeout=60).returncode


def nox(arguments: list[str]) -> int:
    """Choose sessions, and list them or do as if they ran."""
    parser = Parser(prog="nox", allow_abbrev=False)
    parser.add_argument("--session")
    parser.add_argument("--tags")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--json", action="store_true")
    own, after = (arguments[: arguments.index("--")], arguments) if "--" in arguments else (arguments, [])
    chosen = parser.parse_args(own)
    known: list[dict[str, Any]] = json.loads(Path(os.environ["STUB_SESSIONS"]).read_text(encoding="utf-8"))
    sessions = [
        each
        for each in known
        if (chosen.session in (each["session"], each["name"]) if chosen.session else chosen.tags in each["tags"])
    ]
    if not sessions:
        raise ValueError(f"nox: there is no session {chosen.session or chosen.tags!r}; `nox --list` names them")
    if chosen.list and chosen.json:
        print(json.dumps(sessions))
    elif chosen.session == "build":
        _build(Path("dist"))
    if "--github-output" in after:
        with Path(after[after.index("--github-output") + 1]).open("a", encoding="utf-8") as output:
            output.write(os.environ["STUB_BUILD_OUTPUTS"])
    return 0


def _build(dist: Path) -> None:
    """Write files with the names of what a build makes."""
    dist.mkdir()
    for project in json.loads(os.environ["STUB_PROJECTS"]):
        for ending in ("-py3-none-any.whl", ".tar.gz"):
            (dist / f"{project.replace('-', '_')}-{Path('VERSION').read_text().strip()}{ending}").write_text(project)
    (dist / "sbom.cdx.json").write_text("{}")


def gh(arguments: list[str]) -> int:
    """Look at a release, which is not there yet, or make one."""
    parser = Parser(prog="gh", allow_abbrev=False)
    release = parser.add_subparsers(required=True).add_parser("release").add_subparsers(dest="verb", required=True)
    release.add_parser("view").add_argument("tag")
    create = release.add_parser("create", allow_abbrev=False)
    create.add_argument("--verify-tag", action="store_true", required=True)
    create.add_argument("--prerelease", action="store_true")
    create.add_argument("--notes-file", required=True)
    create.add_argument("tag")
    upload = release.add_parser("upload", allow_abbrev=False)
    upload.add_argument("--clobber", action="store_true")
    upload.add_argument("tag")
    upload.add_argument("files", nargs="+")
    chosen = parser.parse_args(arguments)
    if chosen.tag != os.environ["GITHUB_REF_NAME"]:
        raise ValueError(f"gh: the release {chosen.tag!r} is not that of the tag")
    files: list[str] = [chosen.notes_file] if chosen.verb == "create" else getattr(chosen, "files", [])
    if missing := [file for file in files if not Path(file).is_file()]:
        raise ValueError(f"gh: there is no {', '.join(missing)}")
    return 1 if chosen.verb == "view" else 0


def jq(arguments: list[str]) -> int:
    """Run the real one."""
    code = subprocess.run([os.environ["STUB_JQ"], *arguments], check=False, timeout=60).returncode
    if code:
        raise ValueError(f"jq: fails with {code}: {' '.join(arguments)}")
    return 0


PROGRAMS = {"uv": uv, "nox": nox, "gh": gh, "jq": jq}


def main(arguments: list[str]) -> int:
    """Stand in for a program, and record how it was called."""
    program, *rest = arguments
    problem: str | None = None
    code = 2
    try:
        code = PROGRAMS[program](rest)
    except ValueError as error:
        problem = str(error)
        print(problem, file=sys.stderr)
    with Path(os.environ["STUB_CALLS"]).open("a", encoding="utf-8") as calls:
        calls.write(json.dumps({"command": arguments, "problem": problem}) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
