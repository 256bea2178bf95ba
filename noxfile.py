"""Every check of this repository, one session per question."""

from __future__ import annotations

from pathlib import Path

import nox

nox.needs_version = ">=2026.10"
nox.options.default_venv_backend = "uv"
nox.options.sessions = ["tests"]

PYTHONS = ("3.11", "3.12", "3.13")


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
def crash(session: nox.Session) -> None:
    """Kill the engine at 200 random moments, where the ordinary suite does it 20 times."""
    sync(session, "test")
    chosen = session.posargs or ["packages/dex-agents-embedded/tests/test_crash.py"]
    session.run("pytest", *chosen, env={"DEX_AGENTS_CRASH_ROUNDS": "200"})


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
