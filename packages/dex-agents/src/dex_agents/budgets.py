"""How much one turn, or one session, may use: model calls, tool calls, tokens and money."""

from collections.abc import Callable
from dataclasses import dataclass, fields

from dex_agents.checks import check, is_number, is_whole
from dex_agents.errors import ConfigurationError
from dex_agents.runner import Usage

Price = Callable[[Usage, str], float]
"""Returns what the usage of one model Step cost, given the model's name as its provider reports it, or an empty text.

The unit is the application's choice; budgets and `Usage.cost` are in the same one. It must not block. Where it raises,
or returns no finite number from 0, the call is counted in `Usage.unpriced_requests`, and a turn under a budget of cost
ends before its next model call.
"""


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Limits; None for no limit. A budget is used up when what was used has reached a limit.

    Attributes:
        model_calls: Requests to the model. A repeated attempt of a Step counts as one more, since it pays again.
        tool_calls: Calls that the model asks for, whatever becomes of them.
        tokens: Input and output tokens together, as the provider reports them.
        cost: In the unit of the `price` of the session's options.
    """

    model_calls: int | None = None
    tool_calls: int | None = None
    tokens: int | None = None
    cost: float | None = None

    def __post_init__(self) -> None:
        limits = [(field.name, getattr(self, field.name)) for field in fields(self)]
        for name, limit in limits:
            fits = limit is None or (is_number(limit) and limit > 0 if name == "cost" else is_whole(limit))
            number = "a positive number" if name == "cost" else "a positive whole number"
            check(f"a budget's {name}", limit, fits, f"give {number}, or None for no limit")
        if all(limit is None for _, limit in limits):
            raise ConfigurationError("a budget without any limit: give one, or no budget")


def listed_price(usage: Usage, model: str) -> float:
    """Return the list price of usage in US dollars, from the `genai-prices` library (`pip install dex-agents[prices]`).

    It counts cached tokens as ordinary ones, so it is the most that the usage may have cost.

    Raises:
        ConfigurationError: The library is not installed, or does not know the model.
    """
    try:
        import genai_prices
    except ModuleNotFoundError as error:
        raise ConfigurationError("listed_price needs genai-prices: pip install dex-agents[prices]") from error
    used = genai_prices.Usage(input_tokens=usage.input_tokens, output_tokens=usage.output_tokens)
    try:
        return float(genai_prices.calc_price(used, model).total_price)
    except LookupError as error:
        raise ConfigurationError(
            f"genai-prices knows no price of the model {model!r}: give the options a `price` function of your own"
        ) from error
