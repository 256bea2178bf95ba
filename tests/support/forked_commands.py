"""Starts `dex-agents` commands by a fork of a process that has imported what they need.

A fresh interpreter takes 1 to 4 s of CPU to import a framework, most of the time of a test that kills and restarts
Workers. A fork of an idle process, which has imported the same modules and done nothing else, starts in some
milliseconds. What runs then is a process of its own, with the command's own code, and it can be killed like any other.
"""

import ast
import atexit
import functools
import importlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final, cast

_TESTS: Final = Path(__file__).parents[1]
_COMMAND: Final = ("dex_agents._cli", "dex_agents.host", "dex_agents_embedded")
"""What every command loads."""

_HOOKS: Final = "support.crash_points"
"""Looked into for every command, so that commands which differ in nothing else come from one process."""

_OWN: Final = frozenset({"dex_agents", "dex_agents_embedded", *sys.stdlib_module_names})
_GONE_SECONDS: Final = 10


class ForkedCommand:
    """A running command.

    Attributes:
        pid: Its process id.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def is_running(self) -> bool:
        """Whether the process is there."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def kill(self) -> None:
        """Send SIGKILL, and return when the process is gone."""
        try:
            os.kill(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + _GONE_SECONDS
        while self.is_running():
            if time.monotonic() > deadline:
                raise AssertionError(f"process {self.pid} is still there {_GONE_SECONDS} s after SIGKILL")
            time.sleep(0.001)


def start_command(
    arguments: Sequence[str], *, modules: Iterable[str], environment: Mapping[str, str], directory: Path, output: Path
) -> ForkedCommand:
    """Start `dex-agents` with arguments.

    Args:
        arguments: Of the command.
        modules: Modules of the tests that the command will load; what they import is imported before the fork, once for
            all commands that need the same.
        environment: The whole environment of the command.
        directory: Where it runs.
        output: Where its standard output and error go.
    """
    seen: set[str] = set()
    imported = frozenset(name for module in (_HOOKS, *modules) for name in _imported_by(module, seen))
    parent = _parent_for(frozenset(name for name in imported if name.partition(".")[0] not in _OWN))
    assert parent.stdin is not None
    assert parent.stdout is not None
    order = {
        "arguments": [*arguments],
        "environment": {**environment},
        "directory": str(directory),
        "output": str(output),
    }
    parent.stdin.write(json.dumps(order).encode() + b"\n")
    parent.stdin.flush()
    answer = parent.stdout.readline()
    if not answer:
        raise AssertionError(f"the process that forks commands for {sorted(imported)} has ended")
    return ForkedCommand(int(answer))


@functools.cache
def _parent_for(modules: frozenset[str]) -> "subprocess.Popen[bytes]":
    parent = subprocess.Popen(
        [sys.executable, "-m", "support.forked_commands", *sorted(modules)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=_TESTS,
        env={**os.environ, "PYTHONPATH": str(_TESTS)},
    )
    atexit.register(_end, parent)
    return parent


def _end(parent: "subprocess.Popen[bytes]") -> None:
    parent.kill()
    parent.communicate()


def _imported_by(module: str, seen: set[str]) -> Iterator[str]:
    """Return what a module of the tests imports; the tests' own modules are looked into and not imported.

    They read their environment when they are imported, which only the command itself has.
    """
    if module in seen:
        return
    seen.add(module)
    spec = find_spec(module)
    if spec is None or spec.origin is None or not Path(spec.origin).is_relative_to(_TESTS):
        yield module
        return
    for node in ast.walk(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names if node.module == "support")]
        for name in names:
            yield from _imported_by(name, seen)


def _serve(modules: Sequence[str]) -> None:
    for module in (*_COMMAND, *modules):
        importlib.import_module(module)
    # Children that have ended leave at once, without being waited for.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin.buffer:
        order = cast("dict[str, object]", json.loads(line))
        pid = os.fork()
        if pid == 0:
            _become(order)
        os.write(1, f"{pid}\n".encode())


def _become(order: Mapping[str, object]) -> None:
    """Turn this fork into the command; never returns."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        output = os.open(str(order["output"]), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for target, source in ((0, nothing), (1, output), (2, output)):
            os.dup2(source, target)
        os.chdir(str(order["directory"]))
        os.environ.clear()
        os.environ.update(cast("dict[str, str]", order["environment"]))
        sys.argv = ["dex-agents", *cast("list[str]", order["arguments"])]
        command = importlib.import_module("dex_agents._cli")
        command.main(prog_name="dex-agents")
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001  the end of a process: whatever it is, it is printed, and nothing follows
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve(sys.argv[1:])
