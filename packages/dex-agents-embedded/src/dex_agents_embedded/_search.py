"""Finding Flows by a query: conditions on fields and indexed Attributes, joined by AND."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from dex.dexpb import dex_pb2 as pb

from ._index_types import IndexTypes
from ._limits import MEBIBYTE
from ._store.loader import Loader
from ._wire_errors import invalid

DEFAULT_PAGE_SIZE: Final = 100
LARGEST_PAGE_SIZE: Final = 1000
_FULL_PAGE_BYTES: Final = MEBIBYTE
_LARGEST_QUERY_CHARACTERS: Final = 4096

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<name>[A-Za-z_][\w.\-]*)|(?P<quoted>`[^`]+`)
        |(?P<operator>!=|<>|<=|>=|=|<|>)
        |(?P<number>-?\d+(?:\.\d+)?)
        |'(?P<single>(?:[^'\\]|\\.|'')*)'|"(?P<double>(?:[^"\\]|\\.)*)"
    )""",
    re.VERBOSE,
)
_TEXT_FIELDS: Final = {"FlowType": "flow_type", "FlowId": "flow_id", "WorkflowId": "flow_id", "RunId": "run_id"}
_STATUS_FIELDS: Final = frozenset({"FlowStatus", "ExecutionStatus"})
_TIME_FIELDS: Final = {"StartTime": "started_at", "CloseTime": "closed_at"}
_ORDERINGS: Final = frozenset({"<", "<=", ">", ">="})
_STATUSES: Final = {
    name.removeprefix("FLOW_STATUS_").replace("_", "").lower(): number for name, number in pb.FlowStatus.items()
}


class Condition(NamedTuple):
    """One comparison of a query.

    Attributes:
        field: What is compared.
        operator: How.
        operand: With what.
    """

    field: str
    operator: str
    operand: str | float | bool


def parse(query: str) -> list[Condition]:
    """Return the conditions of a query, none for an empty one.

    Raises:
        WireError: The query is not a list of comparisons joined by AND.
    """
    if len(query) > _LARGEST_QUERY_CHARACTERS:
        raise invalid(f"the query has {len(query)} characters, the limit is {_LARGEST_QUERY_CHARACTERS}")
    tokens = list(_tokens(query))
    conditions: list[Condition] = []
    while tokens:
        if conditions and tokens.pop(0) != ("name", "AND"):
            raise _unclear(query, "conditions are joined by AND")
        if len(tokens) < 3:
            raise _unclear(query, "a condition is a field, an operator and a value")
        (kind, field), (operator_kind, operator), (value_kind, value) = tokens[:3]
        del tokens[:3]
        if kind not in ("name", "quoted") or operator_kind != "operator":
            raise _unclear(query, f"expected a field and an operator at {field!r}")
        conditions.append(Condition(field, "!=" if operator == "<>" else operator, _operand(query, value_kind, value)))
    return conditions


def _tokens(query: str) -> Iterator[tuple[str, str]]:
    position, end = 0, len(query.rstrip())
    while position < end:
        match = _TOKEN.match(query, position)
        if match is None or match.lastgroup is None:
            raise _unclear(query, f"cannot read {query[position : position + 20].strip()!r}")
        kind, text = match.lastgroup, match.group(match.lastgroup)
        position = match.end()
        if kind == "name" and text.upper() == "AND":
            yield "name", "AND"
        elif kind == "quoted":
            yield kind, text.strip("`")
        elif kind in ("single", "double"):
            # Two quotes stand for one only inside quotes of the same kind.
            escapes = r"\\(.)|'(')" if kind == "single" else r"\\(.)"
            yield "text", re.sub(escapes, lambda escape: escape[escape.lastindex or 0], text)
        else:
            yield kind, text


def _operand(query: str, kind: str, text: str) -> str | float | bool:
    if kind == "text":
        return text
    if kind == "number":
        return float(text)
    if kind == "name" and text.lower() in ("true", "false"):
        return text.lower() == "true"
    raise _unclear(query, f"{text!r} is no value: quote it")


def _unclear(query: str, why: str) -> Exception:
    return invalid(f"the query {query!r} is not understood: {why}; OR, ORDER BY and functions are not supported")


class Search:
    """SearchFlows.

    Args:
        loader: Reads the file.
        index_types: The index keys that may be named.
    """

    def __init__(self, loader: Loader, index_types: IndexTypes) -> None:
        self._loader = loader
        self._index_types = index_types

    async def run(self, request: pb.SearchFlowsRequest) -> pb.SearchFlowsResponse:
        """Return one page of Flow runs, newest first; what is not on the disk yet is not found."""
        if request.page_size < 0:
            raise invalid(f"page_size must not be negative, it is {request.page_size}")
        size = min(request.page_size or DEFAULT_PAGE_SIZE, LARGEST_PAGE_SIZE)
        clauses: list[str] = []
        parameters: list[str | int | float] = []
        for condition in parse(request.query):
            clause, values = self._clause(condition)
            clauses.append(clause)
            parameters.extend(values)
        if request.next_page_token:
            clauses.append("run.run_key < ?")
            parameters.append(_decode_token(request.next_page_token))
        rows = list(self._loader.search(clauses, parameters, size + 1))
        response = pb.SearchFlowsResponse()
        count = used = 0
        for row in rows[:size]:
            if used > _FULL_PAGE_BYTES:
                break  # large indexed Attributes make shorter pages
            used += self._add(response, row)
            count += 1
        if len(rows) > count:
            response.next_page_token = _encode_token(rows[count - 1][0])
        return response

    def _add(self, response: pb.SearchFlowsResponse, row: tuple[Any, ...]) -> int:
        """Add a run to a page and return how many bytes it takes."""
        run_key, flow_id, run_id, flow_type, status, started_at, closed_at = row
        entry = response.flow_runs.add(flow_id=flow_id, run_id=run_id, flow_type=flow_type, flow_status=status)
        entry.start_time.FromMilliseconds(int(started_at * 1000))
        if closed_at:
            entry.close_time.FromMilliseconds(int(closed_at * 1000))
        for index_key, value in self._loader.indexed_attributes(run_key):
            entry.indexed_attributes.add(key=index_key).value.ParseFromString(value)
        return entry.ByteSize()

    def _clause(self, condition: Condition) -> tuple[str, list[str | int | float]]:
        """Return a condition as SQL made of fixed parts, and the values for its question marks."""
        field, operator, operand = condition
        if field in _TEXT_FIELDS or field in _STATUS_FIELDS:
            if operator in _ORDERINGS or not isinstance(operand, str):
                raise invalid(f"{field} is compared with = or != and a quoted text")
            if field in _TEXT_FIELDS:
                return f"{_TEXT_FIELDS[field]} {operator} ?", [operand]
            return f"status {operator} ?", [_status(operand)]
        if field in _TIME_FIELDS:
            # An open Flow has 0 for its close time, which is no time to compare with.
            column = _TIME_FIELDS[field]
            return f"({column} > 0 AND {column} {operator} ?)", [_time(field, operand)]
        if field not in self._index_types:
            known = ", ".join(sorted([*_TEXT_FIELDS, *_STATUS_FIELDS, *_TIME_FIELDS, *self._index_types.keys()]))
            raise invalid(f"{field!r} is no field and no indexed Attribute that a Worker declared; known: {known}")
        column = "text"
        if isinstance(operand, bool):
            operand = "true" if operand else "false"
        elif isinstance(operand, float):
            column = "number"
        matching = f"SELECT run_key FROM indexed_attribute WHERE index_key = ? AND {column} {operator} ?"  # noqa: S608 - fixed parts
        return f"run.run_key IN ({matching})", [field, operand]


def _status(text: str) -> int:
    name = text.removeprefix("FLOW_STATUS_").replace("_", "").lower()
    if name not in _STATUSES:
        raise invalid(f"{text!r} is no Flow status; known: {', '.join(sorted(_STATUSES))}")
    return _STATUSES[name]


def _time(field: str, operand: str | float | bool) -> float:
    if not isinstance(operand, str):
        raise invalid(f"{field} is compared with a quoted ISO 8601 time")
    try:
        parsed = datetime.fromisoformat(operand)
    except ValueError as error:
        raise invalid(f"{field} is compared with an ISO 8601 time, {operand!r} is none") from error
    return (parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)).timestamp()


def _encode_token(run_key: int) -> str:
    return base64.urlsafe_b64encode(b"run:%d" % run_key).decode()


def _decode_token(token: str) -> int:
    try:
        prefix, _, number = base64.urlsafe_b64decode(token.encode()).decode().partition(":")
        if prefix == "run":
            return int(number)
    except (ValueError, binascii.Error) as error:
        raise invalid(f"{token!r} is no page token of this engine") from error
    raise invalid(f"{token!r} is no page token of this engine")
