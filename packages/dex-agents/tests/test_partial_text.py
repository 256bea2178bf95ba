"""What a cancelled model call had said stays in the history."""

from contextlib import AsyncExitStack
from pathlib import Path

from dex_agents import AgentHost
from dex_agents._client.connection import Connection
from dex_agents._storage.records import PartialText
from dex_agents.session import AgentSession
from support.scripted_runner import read_runs
from support.scripted_sessions import scripted_flow, scripted_session
from support.waiting import wait_for


async def until_spoken(log: Path) -> None:
    async def spoken() -> bool:
        return any(run["kind"] == "spoken" for run in read_runs(log))

    await wait_for(spoken, what="the model's first words")


async def said(session: AgentSession) -> list[tuple[str, str]]:
    return [(one.message.role, one.message.text) async for one in session.iter_messages()]


async def test_the_words_of_a_cancelled_answer_are_in_the_log_and_told_to_the_next_turns_model(
    tmp_path: Path, log: Path
) -> None:
    async with scripted_session(tmp_path / "engine") as session:
        await session.send("call write_a\nspeak The shirt is")
        await until_spoken(log)
        assert await session.cancel_turn(reason="enough")
        result = await session.ask("recall", timeout=10)

        assert (await said(session))[:4] == [
            ("user", "call write_a\nspeak The shirt is"),
            ("tool", ""),
            ("assistant", "The shirt is "),
            ("note", result.text.split("note: ")[1].split("\nuser:")[0]),
        ]
        assert 'Your answer was cut off; the user has seen this much of it: "The shirt is ".' in result.text
        assert "do not repeat them: write_a" in result.text


async def test_an_interrupting_message_comes_after_the_words_that_it_cut_off(tmp_path: Path, log: Path) -> None:
    async with scripted_session(tmp_path / "engine") as session:
        await session.send("speak Well,")
        await until_spoken(log)
        message_id = await session.interrupt("recall")
        result = await session.wait_for_result(message_id, timeout=10)

        assert [text for _, text in await said(session)][:2] == ["speak Well,", "Well, "]
        assert 'this much of it: "Well, "' in result.text
        assert 'The user had written: "speak Well,"' in result.text


async def test_a_turn_that_was_cancelled_in_silence_keeps_nothing_and_waits_for_nothing(
    tmp_path: Path, log: Path
) -> None:
    async with scripted_session(tmp_path / "engine") as session:
        await session.send("sleep")

        async def asked() -> bool:
            return any(run["kind"] == "model" for run in read_runs(log))

        await wait_for(asked, what="the model call")
        await session.cancel_turn()
        result = await session.ask("recall", timeout=10)

        assert "cut off" not in result.text
        assert [role for role, _ in await said(session)] == ["user", "note", "user", "assistant"]


async def test_a_text_of_a_turn_that_goes_on_or_is_over_is_refused(tmp_path: Path, log: Path) -> None:
    flow = scripted_flow()
    async with AgentHost(flow, directory=tmp_path / "engine") as host, AsyncExitStack() as resources:
        connection = Connection([flow], address=host.address, credential=None)
        await connection.open()
        resources.push_async_callback(connection.close)
        session = host.session("s-1")
        await session.start()

        async def keep(turn_id: str) -> bool:
            partial = PartialText(turn_id=turn_id, text="late")
            return await connection.client.invoke_rpc(flow.keep_partial_text, "s-1", partial)

        await session.send("speak Well,")
        await until_spoken(log)
        assert not await keep("turn-1")  # a Worker that stops cancels its Steps, and the turn goes on elsewhere
        await session.cancel_turn()
        await session.ask("say done", timeout=10)
        assert not await keep("turn-1")
