"""How long a session remembers which messages it has got."""

from pathlib import Path

import pytest

from support.scripted_sessions import scripted_session


@pytest.mark.usefixtures("log")
async def test_old_message_ids_are_forgotten_now_and_then_and_new_ones_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dex_agents.steps.await_user_message.FORGETS_EVERY", 3)
    monkeypatch.setattr("dex_agents.steps.await_user_message.REMEMBERED_MESSAGE_IDS", 2)
    async with scripted_session(tmp_path / "engine") as session:
        for number in range(1, 8):
            await session.send(f"say {number}", message_id=f"m-{number}")
            assert (await session.wait_for_result(f"m-{number}", timeout=10)).text == str(number)

        # Turn 6 forgot what was two turns old; a repeated newer one is still the same message.
        await session.send("say 5", message_id="m-5")
        assert (await session.wait_for_result("m-5", timeout=10)).turn_id == "turn-5"
        await session.send("say 3", message_id="m-3")
        assert (await session.wait_for_result("m-3", timeout=10)).turn_id == "turn-8"
