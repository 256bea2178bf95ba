"""What adapters share when they shorten a history."""

import pytest

from dex_agents.messages import CallBlock, MediaBlock, Message, ReasoningBlock, ResultBlock, text_message
from dex_agents.summaries import block_tokens, estimate_tokens, newest_to_keep, summary_for_model, summary_task


def test_an_estimate_is_about_three_bytes_a_token_and_never_nothing() -> None:
    assert [estimate_tokens(text) for text in ("", "a", "abc", "abcd", "日本語")] == [0, 1, 1, 2, 3]
    assert block_tokens([MediaBlock(media_type="image/png", data_base64="A" * 10_000)]) < 2000


@pytest.mark.parametrize(
    ("sizes", "cuts", "keep", "wanted"),
    [
        ([10, 10, 10, 10], [1, 2, 3], 25, 2),
        ([10, 10, 10, 10], [1, 3], 25, 3),
        ([10, 10, 10, 10], [1, 2, 3], 5, 3),  # even the newest permitted part is larger than that
        ([10, 10, 10, 10], [4], 5, 4),
        ([10, 10], [0], 5, None),
        ([], [], 5, None),
    ],
)
def test_the_oldest_permitted_cut_that_keeps_little_enough_is_taken(
    sizes: list[int], cuts: list[int], keep: int, wanted: int | None
) -> None:
    assert newest_to_keep(sizes, cuts, keep) == wanted


def test_a_summary_call_reads_all_that_fits_in_words() -> None:
    older = [
        text_message("user", "How many lamps?"),
        Message(
            role="assistant",
            author="clerk",
            blocks=(
                ReasoningBlock(text="Let me look."),
                CallBlock(call_id="1", name="stock", arguments={"item": "lamp"}),
            ),
        ),
        Message(role="tool", blocks=(ResultBlock(call_id="1", name="stock", status="ok", text="7"),)),
    ]
    task = summary_task(older, window_tokens=8000, earlier_summary="They spoke of chairs.")
    assert task.left_out == 0
    assert task.prompt.startswith("Summary of what came before:\nThey spoke of chairs.\n\nHistory:\n\n")
    assert 'user: How many lamps?\n\nassistant (clerk): [called stock with {"item": "lamp"}]' in task.prompt
    assert "tool: [stock returned (ok): 7]" in task.prompt
    assert "Let me look." not in task.prompt
    assert "at most 560 words" in task.instructions


def test_the_oldest_part_is_left_out_where_all_does_not_fit_and_the_model_is_told() -> None:
    older = [text_message("user", f"{number}:{'x' * 1000}") for number in range(10)]
    task = summary_task(older, window_tokens=2000, earlier_summary="They spoke of chairs.")
    assert estimate_tokens(task.prompt) + estimate_tokens(task.instructions) < 2000
    assert 0 < task.left_out < 10
    assert f"The oldest {task.left_out} messages of this part do not fit" in task.prompt
    assert f"user: {task.left_out}:" in task.prompt
    assert f"user: {task.left_out - 1}:" not in task.prompt
    # What was summarized before is never lost.
    assert "They spoke of chairs." in task.prompt


def test_of_a_single_message_that_does_not_fit_the_beginning_is_read() -> None:
    task = summary_task([text_message("user", "BEGIN" + "x" * 100_000)], window_tokens=1000)
    assert "user: BEGIN" in task.prompt
    assert estimate_tokens(task.prompt) < 1000
    assert task.left_out == 0


def test_the_model_is_told_that_it_reads_a_summary() -> None:
    assert summary_for_model("All is well.").startswith("[Summary of the conversation so far")
    assert summary_for_model("All is well.").endswith("\nAll is well.")
