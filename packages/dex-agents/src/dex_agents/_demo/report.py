"""What the demo found out, from the log outside the session and from the session itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel

from dex_agents._demo.run_log import MODEL, Phase, RunLine
from dex_agents.demo import ANSWER, CALLS
from dex_agents.messages import CallBlock, ResultBlock, SavedMessage
from dex_agents.snapshot import ToolCallSnapshot


class ToolReport(BaseModel):
    """What happened to one tool.

    Attributes:
        effect: As the session recorded it with the call.
        runs: How often it was started, by the log.
        outcome: How the session settled the call.
        idempotency_keys: The different keys that its runs had.
    """

    effect: str
    runs: int
    outcome: str
    idempotency_keys: list[str]


class DemoReport(BaseModel):
    """The last line of `dex-agents demo --json`.

    Attributes:
        answer: The agent's.
        killed: Processes that were ended with SIGKILL, in order.
        tools: By name, in the order in which the model asked.
        model_calls: By the log.
        seconds: From the first process's start to the answer.
    """

    answer: str
    killed: list[str]
    tools: dict[str, ToolReport]
    model_calls: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What a report is computed from.

    Attributes:
        answer: The turn's text.
        killed: The processes that were killed.
        calls: The running turn's calls, as the snapshot showed them.
        messages: The session's log after the turn.
        runs: The lines of the tools' own log.
        seconds: How long it took.
    """

    answer: str
    killed: Sequence[str]
    calls: Sequence[ToolCallSnapshot]
    messages: Sequence[SavedMessage]
    runs: Sequence[RunLine]
    seconds: float

    def report(self) -> DemoReport:
        """Compute the report."""
        outcomes = _outcomes(self.messages)
        tools = {
            name: ToolReport(
                effect=call.effect.value,
                runs=len(self._lines(name, "started")),
                outcome=outcomes.get(name, "missing"),
                idempotency_keys=sorted({line.key for line in self._lines(name, "started")}),
            )
            for name, call in self._named_calls()
        }
        return DemoReport(
            answer=self.answer,
            killed=list(self.killed),
            tools=tools,
            model_calls=len(self._lines(MODEL, "started")),
            seconds=round(self.seconds, 2),
        )

    def broken_promises(self) -> list[str]:
        """Return what did not hold, in words; empty when all held."""
        report = self.report()
        broken: list[str] = []
        if report.answer != ANSWER:
            broken.append(f"the answer is {report.answer!r}, not {ANSWER!r}")
        broken += [f"{call.name} was never asked for" for call in CALLS if call.name not in report.tools]
        for name, call in self._named_calls():
            tool = report.tools[name]
            if tool.runs < 1:
                broken.append(f"{name} never ran")
            if tool.runs > 1 and not call.effect.is_repeatable:
                broken.append(f"{name} may run once and ran {tool.runs} times")
            if tool.idempotency_keys != [call.idempotency_key]:
                broken.append(f"{name} ran with {tool.idempotency_keys}, not with [{call.idempotency_key!r}]")
            if tool.outcome != "ok":
                broken.append(f"{name} ended as {tool.outcome}")
            if len(self._lines(name, "applied")) > 1:
                broken.append(f"{name} took its effect more than once")
        return broken

    def _named_calls(self) -> list[tuple[str, ToolCallSnapshot]]:
        return [(_demo_name(call.name), call) for call in self.calls]

    def _lines(self, tool: str, phase: Phase) -> list[RunLine]:
        return [line for line in self.runs if line.tool == tool and line.phase == phase]


def _outcomes(messages: Sequence[SavedMessage]) -> Mapping[str, str]:
    names: dict[tuple[str, str], str] = {}
    outcomes: dict[str, str] = {}
    for saved in messages:
        for block in saved.message.blocks:
            if isinstance(block, CallBlock):
                names[block.owner, block.call_id] = block.name
            elif isinstance(block, ResultBlock):
                outcomes[_demo_name(block.name or names.get((block.owner, block.call_id), ""))] = block.status
    return outcomes


def _demo_name(shown: str) -> str:
    """Return the demo's own name of a tool; some frameworks show the model a prefix before it."""
    return next((call.name for call in CALLS if shown.endswith(call.name)), shown)
