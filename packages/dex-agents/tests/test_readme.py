"""Each block of Python in the README runs as it is printed, with what a reader has: an agent, a bank, keys."""

import ast
import asyncio
import inspect
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dex_agents import AgentHost, AgentSessionFlow, AgentSessionOptions, Budget
from dex_agents._inquiry import Inquiry
from dex_agents.budgets import listed_price
from dex_agents.errors import ToolPaused
from dex_agents.messages import TextBlock
from dex_agents.otel import OpenTelemetry
from dex_agents.reconciliation import DidNotHappen, Happened, StillUnknown, UnknownCall
from dex_agents.runner import ModelStep, NewTurn, RunModelRequest, StepContext
from dex_agents.testing import RecordedEvents
from dex_agents.tools import Answer, Asks, RetryLater, ToolCallInfo, ToolOutcome, running_tool_call
from readme_program import python_blocks
from support.scripted_runner import ScriptedRunner
from support.scripted_sessions import scripted_session
from support.seeing_agent import digest, sights
from support.seeing_sessions import LARGE, attachments_in, session_in

README = Path(__file__).parents[1] / "README.md"
(
    FEW_LINES,
    WITHOUT_A_LOOP,
    PICTURE,
    FOLLOWING,
    ASKING,
    LONG_SESSIONS,
    ENCRYPTION,
    RESOLVER,
    RECONCILER,
    BUDGETS,
    TELEMETRY,
) = python_blocks(README)
REFUNDED = "Order 7 is refunded."
CALL = ToolCallInfo(session_id="s", turn_id="turn-1", call_id="call-1", idempotency_key="s/turn-1/call-1", attempt=1)


class Clerk(ScriptedRunner):
    """Answers whatever it is asked."""

    async def run_model(self, request: RunModelRequest) -> ModelStep:
        if isinstance(request.input, NewTurn):
            request = replace(request, input=NewTurn(content=(TextBlock(text=f"say {REFUNDED}"),)))
        return await super().run_model(request)


def flow_of(runner: ScriptedRunner, options: AgentSessionOptions | None = None) -> AgentSessionFlow:
    return AgentSessionFlow(runner, name="support", options=options or AgentSessionOptions())


async def run(block: str, **names: Any) -> dict[str, Any]:
    """Run a block as the body of a coroutine, with these names and no others; returns all that it has then."""
    code = compile(block, str(README), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    running = eval(code, names)  # noqa: S307  the README's own code
    if inspect.isawaitable(running):
        await running
    return names


async def ask(flow: AgentSessionFlow, directory: Path) -> str:
    async with AgentHost(flow, directory=directory) as host:
        session = host.session("s-1")
        await session.start()
        return (await session.ask("Refund order 7", timeout=10)).text


async def test_a_few_lines_make_a_session_and_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    names = await run(FEW_LINES, flow=flow_of(Clerk()))

    assert names["result"].text == REFUNDED
    assert REFUNDED in capsys.readouterr().out
    assert (tmp_path / ".dex-agents").is_dir()


def test_a_program_without_an_event_loop_asks_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    exec(compile(WITHOUT_A_LOOP, str(README), "exec", dont_inherit=True), {"flow": flow_of(Clerk())})  # noqa: S102

    assert REFUNDED in capsys.readouterr().out


async def test_a_picture_is_sent_and_read_again(tmp_path: Path, log: Path) -> None:
    async with session_in(tmp_path) as session:
        names = await run(PICTURE, session=session, content=LARGE)
        (said, *_) = (await session.messages()).messages
        (attachment,) = attachments_in(said)

        assert await session.read_attachment(attachment) == LARGE
        assert (names["result"].status, sights(log)) == ("completed", [[digest(LARGE)]])


async def test_a_user_interface_follows_a_session_to_its_end(tmp_path: Path) -> None:
    shown: list[list[str]] = []
    stops: list[asyncio.Task[bool]] = []

    async with scripted_session(tmp_path) as session:

        def render(messages: Any, live_text: str, tool_calls: Any, interrupts: Any) -> None:
            assert (len(tool_calls), len(interrupts)) == (0, 0)
            assert "hello".startswith(live_text)
            shown.append([saved.message.text for saved in messages])
            if shown[-1] == ["say hello", "hello"] and not stops:
                stops.append(asyncio.ensure_future(session.stop()))

        await session.send("say hello")
        async with asyncio.timeout(20):
            await run(FOLLOWING, session=session, render=render)
        assert await stops[0]

    assert shown[-1] == ["say hello", "hello"]


@pytest.mark.parametrize(
    ("in_stock", "expected"),
    [(True, "a red shirt of M"), (False, RetryLater(after_seconds=3600, reason="out of stock"))],
)
async def test_a_tool_asks_for_the_size_and_waits_for_the_stock(in_stock: object, expected: object) -> None:
    names = await run(
        ASKING,
        in_stock=lambda colour, size: in_stock,  # pyright: ignore[reportUnknownLambdaType]
        place_order=lambda colour, size: f"a {colour} shirt of {size}",  # pyright: ignore[reportUnknownLambdaType]
    )

    def order(inquiry: Inquiry) -> ToolOutcome | str | None:
        with running_tool_call(CALL, inquiry):
            try:
                return names["order_shirt"]("red")
            except ToolPaused:
                return inquiry.outcome()

    asked = order(Inquiry())
    assert isinstance(asked, Asks)
    assert [question.answer_schema for question in asked.questions] == [{"enum": ["S", "M", "L"]}]
    assert order(Inquiry(answers={"ask_user:1": Answer(question_id="ask_user:1", value="M")})) == expected


async def test_a_long_session_is_compacted_by_its_options() -> None:
    names = await run(LONG_SESSIONS, agent=Clerk(compacts=True), session_flow=flow_of)

    assert (names["flow"].options.compaction, names["flow"].options.retained_message_limit) == (200_000, 1000)


async def test_an_encrypted_session_answers(tmp_path: Path) -> None:
    names = await run(ENCRYPTION, runner=Clerk(), old_key=b"o" * 32, new_key=b"n" * 32)

    assert await ask(names["flow"], tmp_path) == REFUNDED
    assert names["flow"].options.at_rest is names["encryption"]


async def test_a_resolver_makes_a_model_of_a_plan() -> None:
    async def find(plan: str | None) -> SimpleNamespace:
        return SimpleNamespace(client=f"client of {plan}", instructions="Be brief.")

    names = await run(RESOLVER, runner=Clerk(), plans=SimpleNamespace(find=find))
    step = StepContext(
        session_id="s", turn_id="turn-1", step_number=1, attempt=1, settings={"plan": "gold"}, events=RecordedEvents()
    )

    resolved = await names["resolve"](step)

    assert (resolved.model, resolved.instructions) == ("client of gold", "Be brief.")
    assert isinstance(names["flow"], AgentSessionFlow)


@pytest.mark.parametrize(
    ("charge", "refuses", "expected"),
    [
        (SimpleNamespace(euros=60), True, Happened(result="60 euros are charged")),
        (None, True, DidNotHappen()),
        (None, False, StillUnknown(ask_again_after=60)),
    ],
    ids=["charged", "refused", "still-unknown"],
)
async def test_a_reconciler_asks_the_bank(charge: object, refuses: object, expected: object) -> None:
    async def find(key: str) -> object:
        assert key == CALL.idempotency_key
        return charge

    async def refuse(key: str) -> object:
        assert key == CALL.idempotency_key
        return refuses

    names = await run(RECONCILER, runner=Clerk(), bank=SimpleNamespace(find=find, refuse=refuse))
    call = UnknownCall(
        session_id="s",
        turn_id="turn-1",
        call_id="call-1",
        tool_name="charge_card",
        idempotency_key=CALL.idempotency_key,
        arguments={"euros": 60},
        error="the Worker was lost",
    )

    assert await names["find_charge"](call) == expected
    assert names["flow"].reconcilers["charge_card"] is names["find_charge"]


async def test_budgets_are_options() -> None:
    options: AgentSessionOptions = (await run(BUDGETS))["options"]

    assert options.turn_budget == Budget(model_calls=20, tool_calls=50, tokens=200_000)
    assert options.session_budget == Budget(cost=5.0)
    assert options.price is listed_price


async def test_telemetry_is_an_option(tmp_path: Path) -> None:
    flow: AgentSessionFlow = (await run(TELEMETRY, runner=Clerk()))["flow"]

    assert isinstance(flow.options.telemetry, OpenTelemetry)
    assert await ask(flow, tmp_path) == REFUNDED
