"""Finding Flows by a query on fields and indexed Attributes."""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from dex.dexpb import dex_pb2 as pb

from ._index_types import IndexTypes
from ._limits import MEBIBYTE
from ._query import Comparison, Condition, Operand, Operator, parse
from ._store.index import words_of
from ._store.loader import Loader
from ._wire_errors import invalid

DEFAULT_PAGE_SIZE: Final = 100
LARGEST_PAGE_SIZE: Final = 1000
_FULL_PAGE_BYTES: Final = MEBIBYTE

_TEXT_FIELDS: Final = {
    "FlowType": "flow_type",
    "WorkflowType": "flow_type",
    "FlowId": "flow_id",
    "WorkflowId": "flow_id",
    "RunId": "run_id",
}
_STATUS_FIELDS: Final = frozenset({"FlowStatus", "ExecutionStatus"})
_TIME_FIELDS: Final = {"StartTime": "started_at", "CloseTime": "closed_at"}
_STATUSES: Final = {
    name.removeprefix("FLOW_STATUS_").replace("_", "").lower(): number for name, number in pb.FlowStatus.items()
}
_EQUALITIES: Final = frozenset({"=", "!=", "IN"})
_PREFIXES: Final = frozenset({"STARTS_WITH"})
_ORDERINGS: Final = frozenset({"<", "<=", ">", ">=", "BETWEEN"})
_NUMBERS: Final = frozenset({pb.INDEX_TYPE_INT, pb.INDEX_TYPE_DOUBLE})


class _Clause(NamedTuple):
    """A condition in SQL, made of fixed parts, and the values for its question marks."""

    sql: str
    values: tuple[str | int | float, ...] = ()


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
        clauses: list[_Clause] = []
        condition = parse(request.query)
        if condition is not None:
            clauses.append(self._clause(condition))
        if request.next_page_token:
            clauses.append(_Clause("run.run_key < ?", (_decode_token(request.next_page_token),)))
        values = [value for clause in clauses for value in clause.values]
        rows = list(self._loader.search([clause.sql for clause in clauses], values, size + 1))
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

    def _clause(self, condition: Condition) -> _Clause:
        if isinstance(condition, Comparison):
            return self._comparison(condition)
        parts = [self._clause(part) for part in condition.parts]
        sql = f" {condition.word} ".join(part.sql for part in parts)
        return _Clause(f"({sql})", tuple(value for part in parts for value in part.values))

    def _comparison(self, comparison: Comparison) -> _Clause:
        field = comparison.field
        if field in _TEXT_FIELDS:
            _require(comparison, _EQUALITIES | _PREFIXES, "=, !=, IN or STARTS_WITH")
            return _compared(_TEXT_FIELDS[field], comparison, lambda operand: _text(field, operand))
        if field in _STATUS_FIELDS:
            _require(comparison, _EQUALITIES, "=, != or IN")
            return _compared("status", comparison, lambda operand: _status(_text(field, operand)))
        if field in _TIME_FIELDS:
            return _time_clause(_TIME_FIELDS[field], comparison)
        kind = self._index_types.type_of(field)
        if kind is None:
            known = ", ".join(sorted([*_TEXT_FIELDS, *_STATUS_FIELDS, *_TIME_FIELDS, *self._index_types.keys()]))
            raise invalid(f"{field!r} is no field and no indexed Attribute that a Worker declared; known: {known}")
        matching = "SELECT run_key FROM indexed_attribute WHERE index_key = ?"
        if comparison.operator == "IS NULL":
            return _Clause(f"run.run_key {'' if comparison.is_negated else 'NOT '}IN ({matching})", (field,))
        clause = attribute_clause(kind, comparison)
        return _Clause(f"run.run_key IN ({matching} AND {clause.sql})", (field, *clause.values))


def _time_clause(column: str, comparison: Comparison) -> _Clause:
    # An open Flow has 0 for its close time, which is no time to compare with.
    if comparison.operator == "IS NULL":
        return _Clause(f"{column} {'>' if comparison.is_negated else '='} 0")
    _require(comparison, _EQUALITIES | _ORDERINGS, "=, !=, <, <=, >, >=, IN or BETWEEN")
    clause = _compared(column, comparison, lambda operand: _time(comparison.field, operand))
    return _Clause(f"({column} > 0 AND {clause.sql})", clause.values)


def attribute_clause(kind: pb.IndexType, comparison: Comparison) -> _Clause:
    """Return a comparison with an indexed Attribute of this type, on the columns of its row."""
    field = comparison.field
    if kind == pb.INDEX_TYPE_KEYWORD_ARRAY:
        _require(comparison, _EQUALITIES, "=, != or IN, which look for one element")
        return _elements_clause(comparison)
    if kind == pb.INDEX_TYPE_TEXT:
        _require(comparison, frozenset({"=", "!="}), "= or !=, which look for words")
        return _words_clause(comparison)
    if kind == pb.INDEX_TYPE_DATETIME:
        _require(comparison, _EQUALITIES | _ORDERINGS, "=, !=, <, <=, >, >=, IN or BETWEEN")
        by_time = _compared("number", comparison, lambda operand: _time(field, operand))
        # Rows of an earlier version of this package have no number.
        by_text = _compared("text", comparison, lambda operand: _text(field, operand))
        return _Clause(f"({by_time.sql} OR (number IS NULL AND {by_text.sql}))", by_time.values + by_text.values)
    if kind in _NUMBERS:
        return _number_clause(kind, comparison)
    if comparison.operator in _ORDERINGS and not any(isinstance(it, str | bool) for it in comparison.operands):
        return _compared("number", comparison, lambda operand: _number(field, operand))
    return _compared("text", comparison, _as_text)


def _number_clause(kind: pb.IndexType, comparison: Comparison) -> _Clause:
    _require(comparison, _EQUALITIES | _ORDERINGS, "=, !=, <, <=, >, >=, IN or BETWEEN")
    if kind == pb.INDEX_TYPE_INT and comparison.operator in _EQUALITIES:
        # The column `number` takes neighbours above 2**53 for one.
        return _compared("text", comparison, lambda operand: _whole_text(comparison.field, operand))
    return _compared("number", comparison, lambda operand: _number(comparison.field, operand))


def _elements_clause(comparison: Comparison) -> _Clause:
    is_negated = comparison.is_negated != (comparison.operator == "!=")
    positive = comparison._replace(operator="IN", is_negated=False)
    clause = _compared("element.value", positive, lambda operand: _text(comparison.field, operand))
    elements = "json_each(CASE WHEN json_valid(text) THEN text ELSE '[]' END) AS element"
    exists = _Clause(f"EXISTS (SELECT 1 FROM {elements} WHERE {clause.sql})", clause.values)  # noqa: S608 - fixed parts
    if len(clause.values) == 1:
        # Most rows do not contain the element as it is stored; to see that costs much less than to take them apart.
        stored = json.dumps(clause.values[0])
        exists = _Clause(f"(instr(text, ?) > 0 AND {exists.sql})", (stored, *exists.values))
    return exists._replace(sql=f"NOT {exists.sql}") if is_negated else exists


def _words_clause(comparison: Comparison) -> _Clause:
    text = _text(comparison.field, comparison.operands[0])
    words = words_of(text)
    has_all = " AND ".join(["instr(text, ?) > 0"] * len(words)) or "0"
    # Rows of an earlier version of this package have the text itself.
    sql = f"({has_all} OR text = ?)"
    is_negated = comparison.operator == "!="
    return _Clause(f"NOT {sql}" if is_negated else sql, (*(f" {word} " for word in words), text))


def _compared(column: str, comparison: Comparison, value_of: Callable[[Operand], str | int | float]) -> _Clause:
    """Return a column's comparison with the values that `value_of` makes of the operands."""
    values = tuple(map(value_of, comparison.operands))
    operator = comparison.operator
    if operator == "IN":
        sql = f"{column} IN ({', '.join('?' * len(values))})"
    elif operator == "BETWEEN":
        sql = f"{column} BETWEEN ? AND ?"
    elif operator == "STARTS_WITH":
        sql, values = f"substr({column}, 1, length(?)) = ?", values * 2
    else:
        sql = f"{column} {operator} ?"
    return _Clause(f"NOT ({sql})" if comparison.is_negated else sql, values)


def _require(comparison: Comparison, allowed: frozenset[Operator] | frozenset[str], how: str) -> None:
    if comparison.operator not in allowed:
        raise invalid(f"{comparison.field} is compared with {how}, not with {comparison.operator}")


def _text(field: str, operand: Operand) -> str:
    if not isinstance(operand, str):
        raise invalid(f"{field} is compared with a quoted text, not with {operand}")
    return operand


def _as_text(operand: Operand) -> str:
    if isinstance(operand, bool):
        return "true" if operand else "false"
    return str(operand)


def _number(field: str, operand: Operand) -> float:
    """Return a number, which may be quoted."""
    if not isinstance(operand, bool):
        with suppress(ValueError):
            number = float(str(operand))  # of a text, a number beyond all others is infinite and no error
            if not math.isnan(number):
                return number
    raise invalid(f"{field} is compared with a number, {_as_text(operand)!r} is none")


def _whole_text(field: str, operand: Operand) -> str:
    """Return a number as the text that an integer with its value has."""
    number = _number(field, operand)
    with suppress(ValueError):
        return str(int(str(operand)))
    return str(int(number)) if number.is_integer() else str(number)


def _status(text: str) -> int:
    name = text.removeprefix("FLOW_STATUS_").replace("_", "").lower()
    if name not in _STATUSES:
        raise invalid(f"{text!r} is no Flow status; known: {', '.join(sorted(_STATUSES))}")
    return _STATUSES[name]


def _time(field: str, operand: Operand) -> float:
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
