"""The table's rows."""

import base64
from collections.abc import Sequence
from typing import Final

from pydantic import JsonValue

from dex_agents.messages import MediaBlock, TextBlock
from dex_agents.testing import answer_with, approve, deny
from parity.scenario import OTHER_MODEL, Delegate, HandOff, Report, Scenario, Structured
from parity.toolbox import PNG
from support.fake_provider import Reply, ToolCall

DONE: Final = Reply(text="All is done.")


def call(name: str, call_id: str, **arguments: JsonValue) -> ToolCall:
    """Write a tool call with an id of its own."""
    return ToolCall(name, arguments, call_id)


def calls(*asked: ToolCall, text: str = "", reasoning: str = "") -> Reply:
    """Write a response that asks for tool calls."""
    return Reply(text=text, reasoning=reasoning, tool_calls=asked)


_TEXT: Sequence[Scenario] = (
    Scenario(name="text-only", says=[Reply(text="Hello.")], tools=()),
    Scenario(name="text-from-an-agent-with-tools", says=[Reply(text="Hello.")]),
    Scenario(name="text-streamed", says=[Reply(text="Hello, how are you today?")], streaming=True),
    Scenario(
        name="several-turns",
        says=[Reply(text="Hello."), Reply(text="Fine."), Reply(text="Goodbye.")],
        turns=("hi", "how are you?", "bye"),
        tools=(),
    ),
    Scenario(
        name="an-image-from-the-user",
        says=[Reply(text="A chair.")],
        turns=(
            [
                TextBlock(text="what is it?"),
                MediaBlock(media_type="image/png", data_base64=base64.b64encode(PNG).decode()),
            ],
        ),
        tools=(),
    ),
    Scenario(
        name="an-image-by-address-from-the-user",
        says=[Reply(text="A chair.")],
        turns=([TextBlock(text="what is it?"), MediaBlock(media_type="image/png", uri="https://example.com/a.png")],),
        tools=(),
    ),
    Scenario(name="another-model", says=[Reply(text="Hello.")], settings={"model": OTHER_MODEL}),
    Scenario(
        name="another-model-with-tools",
        says=[calls(call("look_up", "a", city="Oslo")), DONE],
        settings={"model": OTHER_MODEL},
    ),
    Scenario(name="more-instructions", says=[Reply(text="Bonjour.")], settings={"instructions": "Speak French."}),
)

_TOOLS: Sequence[Scenario] = (
    Scenario(
        name="three-parallel-tools",
        says=[calls(*(call("look_up", city.lower(), city=city) for city in ("Oslo", "Rome", "Bern"))), DONE],
    ),
    Scenario(
        name="twenty-parallel-tools",
        says=[calls(*(call("look_up", f"c{number}", city=f"city {number}") for number in range(20))), DONE],
    ),
    Scenario(
        name="nested-tool-rounds",
        says=[
            calls(call("look_up", "a", city="Oslo")),
            calls(call("look_up", "b", city="Rome"), call("count", "c"), text="And now the stock."),
            calls(call("describe", "d", item="chair", sizes=[1, 2])),
            DONE,
        ],
        tools=("look_up", "count", "describe"),
    ),
    Scenario(
        name="tools-streamed",
        says=[
            calls(call("look_up", "a", city="Oslo"), call("look_up", "b", city="Rome"), text="Let me look."),
            calls(call("count", "c")),
            DONE,
        ],
        tools=("look_up", "count"),
        streaming=True,
    ),
    Scenario(
        name="reasoning-before-tools",
        says=[calls(call("look_up", "a", city="Oslo"), reasoning="The weather first.", text="Let me look."), DONE],
    ),
    Scenario(
        name="reasoning-streamed",
        says=[calls(call("look_up", "a", city="Oslo"), reasoning="The weather first.", text="Let me look."), DONE],
        streaming=True,
    ),
    Scenario(
        name="several-turns-with-tools",
        says=[
            calls(call("look_up", "a", city="Oslo")),
            Reply(text="Oslo is sunny."),
            calls(call("look_up", "b", city="Rome"), call("count", "c")),
            Reply(text="Rome too."),
        ],
        tools=("look_up", "count"),
        turns=("the weather in Oslo?", "and in Rome?"),
    ),
    Scenario(
        name="call-ids-that-repeat",
        says=[
            calls(call("look_up", "a", city="Oslo")),
            calls(call("look_up", "a", city="Rome")),
            Reply(text="Both are sunny."),
            calls(call("look_up", "a", city="Bern")),
            DONE,
        ],
        turns=("go", "go on"),
    ),
    Scenario(
        name="default-arguments",
        says=[calls(call("describe", "a", item="chair"), call("describe", "b", item="lamp", colour="blue")), DONE],
        tools=("describe",),
    ),
    Scenario(name="no-arguments", says=[calls(call("count", "a")), DONE], tools=("count",)),
    Scenario(
        name="large-and-strange-results",
        says=[calls(call("quote", "a", length=50_000), call("quote", "b", length=0)), DONE],
        tools=("quote",),
    ),
    Scenario(
        name="an-image-as-result", says=[calls(call("photo", "a"), call("count", "b")), DONE], tools=("photo", "count")
    ),
    Scenario(
        name="a-tool-that-runs-alone",
        says=[
            calls(
                call("look_up", "a", city="Oslo"),
                call("reserve", "b", item="chair"),
                call("look_up", "c", city="Rome"),
                call("reserve", "d", item="lamp"),
            ),
            DONE,
        ],
        tools=("look_up", "reserve"),
    ),
)

_MISTAKES: Sequence[Scenario] = (
    Scenario(
        name="wrong-arguments",
        says=[calls(call("look_up", "a", city=7), call("look_up", "b", city="Oslo")), DONE],
    ),
    Scenario(
        name="missing-arguments",
        says=[calls(call("look_up", "a")), calls(call("look_up", "b", city="Oslo")), DONE],
    ),
    Scenario(
        name="arguments-that-are-no-json",
        says=[calls(ToolCall("look_up", '{"city": ', "a")), DONE],
        # The other providers' clients parse arguments themselves.
        only_on=("scripted", "openai-chat", "openai-responses"),
    ),
    Scenario(
        name="an-unknown-tool",
        says=[calls(call("no_such_tool", "a", x=1), call("look_up", "b", city="Oslo")), DONE],
    ),
    Scenario(
        name="a-tool-asks-for-another-try",
        says=[
            calls(call("look_up", "a", city="Atlantis"), call("look_up", "b", city="Oslo")),
            calls(call("look_up", "c", city="Rome")),
            DONE,
        ],
    ),
    Scenario(
        name="another-try-too-often",
        says=[calls(call("look_up", f"c{number}", city="Atlantis")) for number in range(4)],
        fails=True,
    ),
    Scenario(
        name="a-tool-says-no",
        says=[calls(call("break_down", "a", item="chair"), call("count", "b")), DONE],
        tools=("break_down", "count"),
    ),
    Scenario(
        name="a-tool-raises",
        says=[calls(call("lose_line", "a", item="chair"), call("count", "b")), DONE],
        tools=("lose_line", "count"),
    ),
    Scenario(
        name="too-many-requests",
        says=[calls(call("look_up", f"c{number}", city=f"city {number}")) for number in range(4)],
        request_limit=3,
        fails=True,
    ),
)

_PEOPLE: Sequence[Scenario] = (
    Scenario(
        name="approval-given",
        says=[calls(call("pay", "a", euros=1)), DONE],
        tools=("pay",),
        decisions={"a": approve()},
    ),
    Scenario(
        name="approval-denied",
        says=[calls(call("pay", "a", euros=1)), DONE],
        tools=("pay",),
        decisions={"a": deny("too much")},
    ),
    Scenario(
        name="approval-with-other-arguments",
        says=[calls(call("pay", "a", euros=1)), DONE],
        tools=("pay",),
        decisions={"a": approve({"euros": 100})},
    ),
    Scenario(
        name="approvals-beside-other-calls",
        says=[
            calls(
                call("pay", "yes", euros=1),
                call("look_up", "free", city="Oslo"),
                call("pay", "no", euros=2),
                call("pay", "edited", euros=3),
            ),
            calls(call("pay", "again", euros=4)),
            DONE,
        ],
        tools=("pay", "look_up"),
        decisions={"yes": approve(), "no": deny("too much"), "edited": approve({"euros": 30}), "again": approve()},
    ),
    Scenario(
        name="a-tool-asks-for-approval-itself",
        says=[
            calls(
                call("refund", "small", euros=1),
                call("refund", "large", euros=10),
                call("refund", "larger", euros=20),
            ),
            DONE,
        ],
        tools=("refund",),
        decisions={"large": approve(), "larger": deny("not today")},
    ),
    Scenario(
        name="an-answer-from-outside",
        says=[calls(call("ask_shop", "a", question="open?"), call("count", "b")), DONE],
        tools=("ask_shop", "count"),
        decisions={"a": answer_with({"open": True, "until": 18})},
    ),
)

_OUTPUTS: Sequence[Scenario] = (
    Scenario(name="typed-output", says=[Structured({"summary": "full", "pieces": 7})], tools=(), output=Report),
    Scenario(
        name="typed-output-after-tools",
        says=[calls(call("count", "a")), Structured({"summary": "full", "pieces": 7})],
        tools=("count",),
        output=Report,
    ),
    Scenario(
        name="typed-output-refused-first",
        says=[
            calls(call("count", "a")),
            Structured({"summary": "full"}, call_id="bad"),
            Structured({"summary": "full", "pieces": 7}),
        ],
        tools=("count",),
        output=Report,
    ),
    Scenario(
        name="typed-output-beside-a-call",
        says=[Structured({"summary": "full", "pieces": 7}, beside=[call("count", "a")])],
        tools=("count",),
        output=Report,
    ),
    Scenario(
        name="typed-output-streamed",
        says=[calls(call("count", "a")), Structured({"summary": "full", "pieces": 7})],
        tools=("count",),
        output=Report,
        streaming=True,
    ),
    Scenario(
        name="typed-output-in-two-turns",
        says=[Structured({"summary": "full", "pieces": 7}), Structured({"summary": "empty", "pieces": 0}, call_id="b")],
        tools=(),
        output=Report,
        turns=("now?", "and now?"),
    ),
)

_AGENTS: Sequence[Scenario] = (
    Scenario(
        name="an-agent-as-a-tool",
        says=[Delegate("who are you?", "a"), Reply(text="I am the helper."), DONE],
        helper="tool",
    ),
    Scenario(
        name="a-hand-off",
        says=[HandOff("a"), Reply(text="I am the helper.")],
        tools=(),
        helper="handoff",
    ),
)

SCENARIOS: Final[Sequence[Scenario]] = (*_TEXT, *_TOOLS, *_MISTAKES, *_PEOPLE, *_OUTPUTS, *_AGENTS)
