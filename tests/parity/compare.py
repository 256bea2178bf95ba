"""Says where a durable run differs from a plain one."""

from parity.column import Run
from parity.scenario import Scenario
from support.side_by_side import first_difference


def check_same(scenario: Scenario, plain: Run, durable: Run) -> None:
    """Check that a session showed the model what the plain run showed it, did the same, and ended the same."""
    check_requests(plain, durable)
    check_endings(scenario, plain, durable)
    assert durable.executed == plain.executed
    if plain.usage is not None and not scenario.fails:
        assert durable.usage == plain.usage


def check_requests(plain: Run, durable: Run, *, count: int | None = None) -> None:
    """Check that the model was shown the same.

    Args:
        plain: The plain run.
        durable: The session.
        count: Compare only so many requests; None compares all, and their number.
    """
    for number, (wanted, got) in enumerate(zip(plain.requests[:count], durable.requests[:count], strict=False)):
        assert got == wanted, f"request {number} differs: {first_difference(wanted, got)}"
    if count is None:
        assert len(durable.requests) == len(plain.requests)


def check_endings(scenario: Scenario, plain: Run, durable: Run) -> None:
    """Check that every turn ended the same; of errors, that the session's says what the framework's said."""
    assert len(plain.endings) == len(durable.endings) == len(scenario.turns)
    for wanted, got in zip(plain.endings, durable.endings, strict=True):
        assert got.output == wanted.output
        if wanted.error is None:
            assert got.error is None
        else:
            assert got.error is not None and wanted.error in got.error, f"{got.error!r}, plainly {wanted.error!r}"
    assert (plain.endings[-1].error is not None) == scenario.fails, plain.endings[-1].error


def check_tool_that_raises(plain: Run, durable: Run) -> None:
    """Check that a tool's exception, which aborts the plain run, is told to the model of the session."""
    assert plain.endings[0].error == "no line to the warehouse"
    check_requests(plain, durable, count=1)
    assert durable.endings[0].output == "All is done."
    assert "no line to the warehouse" in str(durable.requests[1])
    # A read is tried three times.
    assert [line.partition(" ")[0] for line in durable.executed] == ["count", *["lose_line"] * 3]
