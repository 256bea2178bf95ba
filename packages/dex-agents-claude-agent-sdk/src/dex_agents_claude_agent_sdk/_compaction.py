"""What the CLI's own compaction leaves of a conversation."""

from dataclasses import replace

from dex_agents.runner import CannotCompactNow, Compacted, CompactOutcome
from dex_agents_claude_agent_sdk._content import as_text
from dex_agents_claude_agent_sdk._model_step import to_usage
from dex_agents_claude_agent_sdk._rows import Row, content_of, pack
from dex_agents_claude_agent_sdk._segment import Segment
from dex_agents_claude_agent_sdk._state import MAIN, SessionState, write_state


def to_compacted(state: SessionState, segment: Segment, folded_before_step: int) -> CompactOutcome:
    """Return the state with the rows from the CLI's mark on, which begin with its summary.

    Args:
        state: Before the compaction.
        segment: In which the CLI compacted.
        folded_before_step: Everything that earlier Steps recorded is in the summary.
    """
    result = segment.ending
    marks = [place for place, row in enumerate(segment.added) if row.get("subtype") == "compact_boundary"]
    kept = segment.added[marks[-1] :] if marks else []
    summary = next((_text(row) for row in kept if row.get("isCompactSummary")), None)
    if summary is None:
        return CannotCompactNow(reason=f"the CLI did not compact: {result.result or result.subtype}")
    cost = result.total_cost_usd or 0.0
    compacted = replace(
        state,
        session_id=result.session_id,
        cli_version=segment.cli_version or state.cli_version,
        # Without the transcripts of subagents, which would only grow: their reports are in the summary.
        chunks={MAIN: tuple(pack(kept))},
        total_cost_usd=state.total_cost_usd + cost,
    )
    return Compacted(
        state=write_state(compacted), summary=summary, folded_before_step=folded_before_step, usage=to_usage(segment)
    )


def _text(row: Row) -> str:
    return as_text(list(content_of(row)))
