"""Every check of this repository, one session per question."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nox

nox.needs_version = ">=2026.10"
nox.options.default_venv_backend = "uv"
nox.options.sessions = ["tests"]

ROOT = Path(__file__).parent
PYTHONS = ("3.11", "3.12", "3.13")


@dataclass(frozen=True)
class Cell:
    """One release of one framework on one interpreter; a row of a file in `compat/`.

    Attributes:
        adapter: The file's name.
        distribution: The adapter's distribution, which is its directory in `packages/` too.
        python: The interpreter.
        pins: The framework's distributions and the exact releases of them; the first one names the cell.
    """

    adapter: str
    distribution: str
    python: str
    pins: Mapping[str, str]

    @property
    def id(self) -> str:
        """What `nox -s "compat(ID)"` calls it."""
        return f"{self.adapter}-{next(iter(self.pins.values()))}-py{self.python}"


def read_cells(directory: Path) -> list[Cell]:
    """Read the cells of every adapter.

    An element of `releases` is a release of `framework`, or a table of distributions and releases that belong together,
    with `framework` first.
    """
    cells: list[Cell] = []
    for path in sorted(directory.glob("*.toml")):
        row: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        for release in row["releases"]:
            pins: dict[str, str] = {row["framework"]: release} if isinstance(release, str) else release
            cells += [Cell(path.stem, row["distribution"], python, pins) for python in row["pythons"]]
    return cells


CELLS = read_cells(ROOT / "compat")


def sync(session: nox.Session, *groups: str) -> None:
    """Install the workspace and the named groups from the lock into this session's environment."""
    chosen = [word for group in groups for word in ("--group", group)]
    session.run_install(
        "uv",
        "sync",
        "--locked",
        "--all-packages",
        "--no-default-groups",
        *chosen,
        env={"UV_PROJECT_ENVIRONMENT": session.virtualenv.location, "UV_COMPILE_BYTECODE": "1"},
    )


@nox.session
def tests(session: nox.Session) -> None:
    """Run the whole test suite on the interpreter that runs nox, and then the quick checks of style and types."""
    session.notify("lint")
    session.notify("types")
    sync(session, "test")
    session.run("pytest", *session.posargs)


@nox.session(name="tests-on", python=PYTHONS)
def tests_on(session: nox.Session) -> None:
    """Run the whole test suite on one named interpreter."""
    sync(session, "test")
    session.run("pytest", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check format, style and the layers between packages."""
    sync(session, "lint")
    session.run("ruff", "format", "--check", ".")
    session.run("ruff", "check", ".")
    session.run("lint-imports")


@nox.session
def types(session: nox.Session) -> None:
    """Check the types of source and tests, strictly."""
    sync(session, "test", "types")
    session.run("pyright", "--pythonpath", str(Path(session.bin) / "python"))


@nox.session
def crash(session: nox.Session) -> None:
    """Kill Workers and engines at every moment of a session; a sample of it is part of `tests`.

    About 7 s a case, and three cases a moment and adapter. Arguments go to pytest: `nox -s crash -- -k pydantic-ai`.
    """
    sync(session, "test")
    session.run("pytest", "tests/crash", *session.posargs, env={"CRASH_MATRIX": "whole"})


@nox.session
@nox.parametrize(["python", "cell"], [nox.param(cell.python, cell, id=cell.id) for cell in CELLS])
def compat(session: nox.Session, cell: Cell) -> None:
    """Run an adapter's own tests and its column of the parity table with one release of its framework."""
    package = ROOT / "packages" / cell.distribution
    own = [ROOT / "packages" / name for name in ("dex-agents", "dex-agents-embedded")]
    editable = [word for path in (*own, package) for word in ("-e", str(path))]
    # In one step, so that the pins bind what the tests need as well.
    pins = [f"{name}=={release}" for name, release in cell.pins.items()]
    session.install(*editable, *pins, "--group", "test", env={"UV_COMPILE_BYTECODE": "1"})
    for name, release in cell.pins.items():
        code = f"from importlib.metadata import version; print(version({name!r}))"
        installed = str(session.run("python", "-c", code, silent=True)).strip()
        if installed != release:
            session.error(f"{name} {installed} is installed where {release} is to be tested")
    session.run("pytest", str(package / "tests"), "tests/parity", *session.posargs)
