"""The text of a search: comparisons joined by AND and OR, with parentheses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple, TypeAlias

from ._wire_errors import invalid

_LARGEST_QUERY_CHARACTERS: Final = 4096
_DEEPEST_NESTING: Final = 20
_MOST_COMPARISONS: Final = 20  # each may look at every run that has the Attribute

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<name>[A-Za-z_][\w.\-]*)|(?P<quoted>`[^`]+`)
        |(?P<operator>!=|<>|<=|>=|=|<|>)
        |(?P<mark>[(),])
        |(?P<number>-?\d+(?:\.\d+)?)
        |'(?P<single>(?:[^'\\]|\\.|'')*)'|"(?P<double>(?:[^"\\]|\\.)*)"
    )""",
    re.VERBOSE,
)
_WORDS: Final = frozenset({"AND", "OR", "NOT", "IN", "BETWEEN", "IS", "NULL", "STARTS_WITH"})

Operand: TypeAlias = str | int | float | bool
Operator: TypeAlias = Literal["=", "!=", "<", "<=", ">", ">=", "IN", "BETWEEN", "IS NULL", "STARTS_WITH"]


class Comparison(NamedTuple):
    """One condition.

    Attributes:
        field: What is compared.
        operator: How.
        operands: With what: one value, for `IN` one or more, for `BETWEEN` two, for `IS NULL` none.
        is_negated: Whether the opposite is asked for (`NOT IN` and its like).
    """

    field: str
    operator: Operator
    operands: tuple[Operand, ...]
    is_negated: bool = False


class Junction(NamedTuple):
    """Conditions of which all, or at least one, must hold.

    Attributes:
        word: Which of the two.
        parts: The conditions.
    """

    word: Literal["AND", "OR"]
    parts: tuple[Condition, ...]


Condition: TypeAlias = Comparison | Junction


def parse(query: str) -> Condition | None:
    """Return the condition that a query states, None for an empty one.

    Raises:
        WireError: The query is not understood.
    """
    if len(query) > _LARGEST_QUERY_CHARACTERS:
        raise invalid(f"the query has {len(query)} characters, the limit is {_LARGEST_QUERY_CHARACTERS}")
    return _Parser(query).whole()


class _Token(NamedTuple):
    kind: str
    text: str


_END: Final = _Token("end", "")


class _Parser:
    def __init__(self, query: str) -> None:
        self._query = query
        self._tokens = [*self._read(), _END]
        self._position = 0
        self._depth = 0
        self._comparisons = 0

    def whole(self) -> Condition | None:
        if self._next == _END:
            return None
        condition = self._any_of()
        if self._next != _END:
            raise self._unclear(f"conditions are joined by AND and OR, and {self._next.text!r} is neither")
        return condition

    def _any_of(self) -> Condition:
        parts = [self._all_of()]
        while self._took("word", "OR"):
            parts.append(self._all_of())
        return parts[0] if len(parts) == 1 else Junction("OR", tuple(parts))

    def _all_of(self) -> Condition:
        parts = [self._one()]
        while self._took("word", "AND"):
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else Junction("AND", tuple(parts))

    def _one(self) -> Condition:
        if not self._took("mark", "("):
            return self._comparison()
        self._depth += 1
        if self._depth > _DEEPEST_NESTING:
            raise self._unclear(f"parentheses are nested more than {_DEEPEST_NESTING} deep")
        condition = self._any_of()
        self._require("mark", ")")
        self._depth -= 1
        return condition

    def _comparison(self) -> Comparison:
        self._comparisons += 1
        if self._comparisons > _MOST_COMPARISONS:
            raise invalid(f"a query has at most {_MOST_COMPARISONS} comparisons; IN compares with several values")
        field = self._take()
        if field.kind not in ("name", "quoted"):
            raise self._unclear("a condition is a field, an operator and a value")
        token = self._take()
        if token.kind == "operator":
            return Comparison(field.text, _OPERATORS[token.text], (self._operand(),))
        if token == _Token("word", "IS"):
            is_negated = self._took("word", "NOT")
            self._require("word", "NULL")
            return Comparison(field.text, "IS NULL", (), is_negated)
        is_negated = token == _Token("word", "NOT")
        word = self._take() if is_negated else token
        if word == _Token("word", "STARTS_WITH"):
            return Comparison(field.text, "STARTS_WITH", (self._operand(),), is_negated)
        if word == _Token("word", "BETWEEN"):
            least = self._operand()
            self._require("word", "AND")
            return Comparison(field.text, "BETWEEN", (least, self._operand()), is_negated)
        if word == _Token("word", "IN"):
            return Comparison(field.text, "IN", self._list(), is_negated)
        raise self._unclear("a condition is a field, an operator and a value")

    def _list(self) -> tuple[Operand, ...]:
        self._require("mark", "(")
        operands = [self._operand()]
        while self._took("mark", ","):
            operands.append(self._operand())
        self._require("mark", ")")
        return tuple(operands)

    def _operand(self) -> Operand:
        kind, text = self._take()
        if kind == "text":
            return text
        if kind == "number":
            return float(text) if "." in text else int(text)
        if kind == "name" and text.lower() in ("true", "false"):
            return text.lower() == "true"
        if kind == "end":
            raise self._unclear("a condition is a field, an operator and a value")
        raise self._unclear(f"{text!r} is no value: quote it")

    @property
    def _next(self) -> _Token:
        return self._tokens[self._position]

    def _take(self) -> _Token:
        token = self._next
        if token != _END:
            self._position += 1
        return token

    def _took(self, kind: str, text: str) -> bool:
        if self._next != (kind, text):
            return False
        self._position += 1
        return True

    def _require(self, kind: str, text: str) -> None:
        if not self._took(kind, text):
            found = repr(self._next.text) if self._next != _END else "its end"
            raise self._unclear(f"{text!r} is missing before {found}")

    def _read(self) -> Iterator[_Token]:
        position, end = 0, len(self._query.rstrip())
        while position < end:
            match = _TOKEN.match(self._query, position)
            if match is None or match.lastgroup is None:
                raise self._unclear(f"cannot read {self._query[position : position + 20].strip()!r}")
            kind, text = match.lastgroup, match.group(match.lastgroup)
            position = match.end()
            if kind == "name" and text.upper() in _WORDS:
                yield _Token("word", text.upper())
            elif kind == "quoted":
                yield _Token(kind, text.strip("`"))
            elif kind in ("single", "double"):
                # Two quotes stand for one only inside quotes of the same kind.
                escapes = r"\\(.)|'(')" if kind == "single" else r"\\(.)"
                yield _Token("text", re.sub(escapes, lambda escape: escape[escape.lastindex or 0], text))
            else:
                yield _Token(kind, text)

    def _unclear(self, why: str) -> Exception:
        return invalid(f"the query {self._query!r} is not understood: {why}; ORDER BY and functions are not supported")


_OPERATORS: Final[dict[str, Operator]] = {
    "=": "=",
    "!=": "!=",
    "<>": "!=",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}
