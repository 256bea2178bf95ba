"""The tools of the scenarios: plain typed methods, which a column gives to its framework in the framework's own way."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from dex_agents import ToolEffect, ToolPolicies, ToolPolicy

PNG: Final = b"\x89PNG\r\n\x1a\n"
"""What stands for an image; nobody looks at it."""

POLICIES: Final[ToolPolicies] = {
    "look_up": ToolEffect.READ,
    "count": ToolEffect.READ,
    "quote": ToolEffect.READ,
    "photo": ToolEffect.READ,
    "describe": ToolEffect.READ,
    "break_down": ToolEffect.NON_IDEMPOTENT_WRITE,
    "lose_line": ToolEffect.READ,
    "reserve": ToolEffect.IDEMPOTENT_WRITE,
    "pay": ToolPolicy(effect=ToolEffect.NON_IDEMPOTENT_WRITE, approval=True),
    "refund": ToolEffect.NON_IDEMPOTENT_WRITE,
    "ask_shop": ToolEffect.READ,
    "ask_helper": ToolEffect.READ,
}
"""What the durable session is told of the tools."""

APPROVED_BEFORE: Final = frozenset({"pay"})
"""Tools that the agent itself declares as needing a person's approval, in the framework's own way."""

ANSWERED_OUTSIDE: Final = frozenset({"ask_shop"})
"""Tools whose result comes from outside the process."""

ALONE: Final = frozenset({"reserve"})
"""Tools that must not run beside others, where the framework can say so."""

ASKS_ABOVE_EUROS: Final = 5


def asks_for_approval(name: str, arguments: Mapping[str, Any]) -> bool:
    """Whether a tool itself asks for an approval of this call: `refund`, above 5 euros."""
    return name == "refund" and int(arguments["euros"]) > ASKS_ABOVE_EUROS


class TryAgain(Exception):  # noqa: N818  a request to the model, no error
    """The tool asks the model to call it again with other arguments."""


class ToolSaysNo(Exception):  # noqa: N818  a result, no error
    """The tool reports a failure as its result."""


@dataclass(frozen=True)
class Image:
    """A tool's result that is an image."""

    data: bytes
    media_type: str


class Toolbox:
    """The tools of one run, and what they did.

    Attributes:
        executed: One line a run of a tool: its name and arguments.
    """

    def __init__(self) -> None:
        self.executed: list[str] = []

    def functions(self, names: tuple[str, ...]) -> dict[str, Callable[..., Awaitable[Any]]]:
        """Return the named tools; signature and docstring are what the model is told."""
        return {name: getattr(self, name) for name in names}

    def note(self, tool: str, **arguments: Any) -> None:
        """Write down that a tool runs."""
        self.executed.append(f"{tool} {json.dumps(arguments, sort_keys=True)}")

    async def look_up(self, city: str) -> str:
        """Say what the weather in a city is."""
        self.note("look_up", city=city)
        # The first call of a batch ends last.
        await asyncio.sleep(0.02 if city == "Oslo" else 0)
        if city == "Atlantis":
            raise TryAgain("no such city")
        return f"{city} is sunny"

    async def count(self) -> dict[str, Any]:
        """Count what is in stock."""
        self.note("count")
        return {"chairs": 3, "tables": [1, 2], "open": True, "note": None}

    async def quote(self, length: int) -> str:
        """Quote a text of a length."""
        self.note("quote", length=length)
        return 'ä "quoted"\n\tline \u2028 😀 ' + "x" * length

    async def photo(self) -> Image:
        """Take a photo."""
        self.note("photo")
        return Image(PNG, "image/png")

    async def describe(self, item: str, colour: str = "red", sizes: list[int] | None = None) -> str:
        """Describe an item."""
        self.note("describe", item=item, colour=colour, sizes=sizes)
        return f"{item} {colour} {sizes}"

    async def break_down(self, item: str) -> str:
        """Say that an item cannot be had."""
        self.note("break_down", item=item)
        raise ToolSaysNo(f"{item} is out of stock")

    async def lose_line(self, item: str) -> str:
        """Ask a warehouse that does not answer."""
        self.note("lose_line", item=item)
        raise ConnectionError("no line to the warehouse")

    async def reserve(self, item: str) -> str:
        """Reserve an item."""
        self.note("reserve", item=item)
        return f"{item} is reserved"

    async def pay(self, euros: int) -> str:
        """Pay an amount."""
        self.note("pay", euros=euros)
        return f"paid {euros}"

    async def refund(self, euros: int) -> str:
        """Refund an amount."""
        self.note("refund", euros=euros)
        return f"refunded {euros}"

    async def ask_shop(self, question: str) -> str:
        """Ask the people in the shop."""
        raise AssertionError(f"{question!r} is answered from outside: no process runs this tool")
