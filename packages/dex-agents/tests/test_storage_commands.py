"""`dex-agents backup`, `integrity`, `export`, `import`, `purge`: what an operator does with the engine's directory."""

import sqlite3
from contextlib import closing
from pathlib import Path

from click.testing import CliRunner, Result

from dex_agents import AgentHost
from dex_agents._cli import main
from support.scripted_sessions import scripted_flow


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


async def test_a_session_moves_to_another_engine_and_remembers_what_was_said(tmp_path: Path) -> None:
    old, new, file = tmp_path / "old", tmp_path / "new", tmp_path / "s-1.session"
    async with AgentHost(scripted_flow(), directory=old) as host:
        await host.session("s-1").start()
        await host.session("s-1").ask("say hello", timeout=10)
        exported = run("export", "s-1", file, "--data", old)
        assert exported.exit_code == 0, exported.output
        assert run("integrity", "--data", old).output.endswith("is whole\n")
    imported = run("import", file, "--data", new)
    assert imported.exit_code == 0, imported.output
    assert "s-1" in imported.output
    async with AgentHost(scripted_flow(), directory=new) as host:
        page = await host.session("s-1").messages()
        assert "say hello" in str(page)
        assert (await host.session("s-1").ask("say hello", timeout=10)).text == "hello"
    assert run("integrity", "--data", new).exit_code == 0


async def test_a_backup_of_a_running_engine_is_an_engines_file(tmp_path: Path) -> None:
    async with AgentHost(scripted_flow(), directory=tmp_path / "old") as host:
        await host.session("s-1").start()
        await host.session("s-1").ask("say hello", timeout=10)
        (tmp_path / "new").mkdir()
        done = run("backup", tmp_path / "new" / "engine.db", "--data", tmp_path / "old")
        assert done.exit_code == 0, done.output
    async with AgentHost(scripted_flow(), directory=tmp_path / "new") as host:
        assert (await host.session("s-1").ask("say hello", timeout=10)).text == "hello"


async def test_a_purged_session_leaves_nothing_in_the_file_and_the_others_go_on(tmp_path: Path) -> None:
    async with AgentHost(scripted_flow(), directory=tmp_path) as host:
        for session_id, word in (("s-1", "swordfish"), ("s-2", "hello")):
            await host.session(session_id).start(title=word)
            await host.session(session_id).ask(f"call read_a\nsay {word}", timeout=10)
        await host.session("s-1").stop()
        in_use = run("purge", "s-1", "--yes", "--data", tmp_path)
        assert in_use.exit_code == 2
        assert "another engine uses" in in_use.output
    assert b"swordfish" in (tmp_path / "engine.db").read_bytes()

    assert run("purge", "s-1", "--data", tmp_path).exit_code == 1  # nobody confirmed it
    purged = run("purge", "s-1", "--yes", "--data", tmp_path)

    assert purged.output == "session s-1 is deleted (1 runs)\n"
    assert b"swordfish" not in (tmp_path / "engine.db").read_bytes()
    assert run("integrity", "--data", tmp_path).exit_code == 0
    assert run("purge", "s-1", "--yes", "--data", tmp_path).exit_code == 2
    async with AgentHost(scripted_flow(), directory=tmp_path) as host:
        assert (await host.session("s-2").ask("say hello", timeout=10)).text == "hello"
        assert await host.session("s-1").start() is True


def test_what_cannot_be_done_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    for arguments in (
        ("integrity", "--data", tmp_path),
        ("backup", tmp_path / "copy", "--data", tmp_path),
        ("export", "s-1", tmp_path / "copy", "--data", tmp_path),
        ("import", tmp_path / "copy", "--data", tmp_path),
        ("purge", "s-1", "--yes", "--data", tmp_path),
    ):
        result = run(*arguments)
        assert result.exit_code == 2
        assert "does not exist" in result.output


async def test_an_unknown_session_is_called_a_session(tmp_path: Path) -> None:
    async with AgentHost(scripted_flow(), directory=tmp_path):
        pass
    for arguments in (("purge", "nobody", "--yes"), ("export", "nobody", tmp_path / "copy")):
        assert "there is no session or other Flow 'nobody'" in run(*arguments, "--data", tmp_path).output
        assert "made when it is missing" not in run(arguments[0], "--help").output


async def test_damage_is_reported_and_the_exit_code_is_1(tmp_path: Path) -> None:
    async with AgentHost(scripted_flow(), directory=tmp_path) as host:
        await host.session("s-1").start()
    with closing(sqlite3.connect(tmp_path / "engine.db")) as database:
        database.execute("DELETE FROM run")
        database.commit()
    result = run("integrity", "--data", tmp_path)
    assert result.exit_code == 1
    assert "belong to no Flow run" in result.output
