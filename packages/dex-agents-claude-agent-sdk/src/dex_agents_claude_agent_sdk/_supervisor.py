"""Runs the CLI of one segment, and lets nothing that it started outlive the Worker.

A program of its own, run by path with `python -I -S` so that it starts in milliseconds; nothing imports it:

    _supervisor.py WORKER_PID RECORD KEPT_NAMES COMMAND [ARGUMENT ...]

It passes on only the environment variables among KEPT_NAMES, and its input and output go to the CLI untouched. It ends
everything below it (shells that left their session or parent too) when the CLI ends, when it is told to (SIGTERM first
asks the CLI, SIGUSR1 does not), and when the Worker dies, which the kernel tells it at once.
"""

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_IS_LINUX = sys.platform == "linux"
_LOOK_SECONDS = 0.5  # how often it looks for its parent where no kernel tells
_ASK_SECONDS = 2.0  # how long the CLI may take to end when it is asked
_END_SECONDS = 5.0  # how long killed processes may take to go
_NEWS = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM, signal.SIGUSR1}


def _tell_kernel(option: int, value: int) -> None:
    if _IS_LINUX:
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _below(root: int) -> list[int]:
    """List the processes below one, from the process table."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir() if _IS_LINUX else ():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            except OSError:
                continue  # it ended while we looked
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found: list[int] = []
    waiting = [root]
    while waiting:
        new = children.get(waiting.pop(), [])
        found += new
        waiting += new
    return found


def _reap() -> dict[int, int]:
    """Take the status of every child that ended."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = status


def _end_all(command: int) -> None:
    """Kill everything below this process; orphans come to it, because it is their subreaper."""
    deadline = time.monotonic() + _END_SECONDS
    while time.monotonic() < deadline:
        targets = _below(os.getpid())
        if not _IS_LINUX:
            try:
                os.killpg(command, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                return
        for pid in targets:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        _reap()
        if not targets:
            return
        time.sleep(0.01)


def _start(command: list[str], environment: dict[str, str]) -> int:
    supervisor = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setpgid(0, 0)
        _tell_kernel(_PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _NEWS)
        if os.getppid() == supervisor:
            os.execve(command[0], command, environment)  # noqa: S606  it is what this program is for
    except OSError as error:
        os.write(2, f"{command[0]} cannot be run: {error}\n".encode())
    os._exit(126)


def main() -> int:
    """Run the command; return its exit status, 128 and more for a signal."""
    worker, record, kept, command = int(sys.argv[1]), sys.argv[2], set(sys.argv[3].split(",")), sys.argv[4:]
    os.setsid()
    signal.pthread_sigmask(signal.SIG_BLOCK, _NEWS)
    _tell_kernel(_PR_SET_PDEATHSIG, signal.SIGTERM)
    _tell_kernel(_PR_SET_CHILD_SUBREAPER, 1)
    if os.getppid() != worker:
        return 125
    environment = {name: value for name, value in os.environ.items() if name in kept}
    Path(record).write_text(f"{os.getpid()}\n{environment.get('CLAUDE_CONFIG_DIR', '')}\n", encoding="utf-8")
    signal.setitimer(signal.ITIMER_REAL, _LOOK_SECONDS, _LOOK_SECONDS)
    cli = _start(command, environment)
    # Only the CLI holds the pipes, so that the Worker sees their end when the CLI ends.
    for descriptor in (0, 1):
        os.close(descriptor)
    asked = None
    while True:
        news = signal.sigwait(_NEWS)
        ended = _reap()
        if cli in ended:
            _end_all(cli)
            status = os.waitstatus_to_exitcode(ended[cli])
            return status if status >= 0 else 128 - status
        is_late = asked is not None and time.monotonic() > asked + _ASK_SECONDS
        if os.getppid() != worker or news == signal.SIGUSR1 or is_late:
            _end_all(cli)
            return 128 + signal.SIGKILL
        if news in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP) and asked is None:
            asked = time.monotonic()
            os.kill(cli, signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
