"""Waiting for a Step or an Attribute of a running Flow."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import grpc
from dex.dexpb import dex_pb2 as pb

from dex_agents_embedded._hot_runs import HotRun
from dex_agents_embedded._shell import Shell
from dex_agents_embedded._wire_errors import flow_closed, invalid, long_poll_ended, wire_error

from .lookup import find_running, require_name, wait_seconds

_OPERATORS: Final = frozenset(number for number in pb.AttributeMatchOperator.values() if number)
_ORDERINGS: Final = frozenset(
    {
        pb.ATTRIBUTE_MATCH_OPERATOR_GREATER_THAN,
        pb.ATTRIBUTE_MATCH_OPERATOR_GREATER_THAN_OR_EQUAL,
        pb.ATTRIBUTE_MATCH_OPERATOR_LESS_THAN,
        pb.ATTRIBUTE_MATCH_OPERATOR_LESS_THAN_OR_EQUAL,
    }
)


class Waits:
    """WaitForStepCompletion and WaitForAttribute."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    async def step(self, request: pb.WaitForStepCompletionRequest) -> pb.WaitForStepCompletionResponse:
        """Wait until a Step execution is finished or cancelled."""
        require_name("step_type", request.step_type)
        if not request.step_execution_number.isdecimal() or int(request.step_execution_number) < 1:
            raise invalid(f"step_execution_number must be a positive number, it is {request.step_execution_number!r}")
        number = int(request.step_execution_number)
        seconds = wait_seconds("request_timeout_seconds", request.request_timeout_seconds)
        hot = self._find(request.flow_id, lambda it: it.run.is_step_finished(request.step_type, number))
        finished = await self._shell.until(
            hot.run.key,
            lambda it: not it.run.is_running or it.run.is_step_finished(request.step_type, number),
            seconds,
        )
        if finished is None:
            raise long_poll_ended(f"Step {request.step_type}-{number} is not finished")
        if not finished.run.is_step_finished(request.step_type, number):
            raise flow_closed(request.flow_id)
        return pb.WaitForStepCompletionResponse()

    async def attribute(self, request: pb.WaitForAttributeRequest) -> pb.WaitForAttributeResponse:
        """Wait until an Attribute matches, and return the value that did."""
        match = request.match
        _check_match(match)
        seconds = wait_seconds("request_timeout_seconds", request.request_timeout_seconds)
        hot = self._find(request.flow_id, lambda _: False)
        found: list[pb.Value] = []

        def is_met(it: HotRun) -> bool:
            serialized = self._shell.attributes.get(it, match.key)
            if serialized is not None:
                value = pb.Value.FromString(serialized)
                _check_stored(match.key, value)
                if _matches(value, match):
                    found.append(value)
            return bool(found) or not it.run.is_running

        met = await self._shell.until(hot.run.key, is_met, seconds)
        if met is None:
            raise long_poll_ended(f"Attribute {match.key!r} does not match")
        if not found:
            raise flow_closed(request.flow_id)
        return pb.WaitForAttributeResponse(matched_value=found[0])

    def _find(self, flow_id: str, is_met: Callable[[HotRun], bool]) -> HotRun:
        """Return the Flow's run; one that is closed only if what is waited for has happened."""
        hot = self._shell.runs.find(flow_id) if flow_id else None
        if hot is not None and is_met(hot):
            return hot
        return find_running(self._shell, flow_id)


def _check_match(match: pb.AttributeMatch) -> None:
    if not match.key:
        raise invalid("match.key must not be empty")
    if _scalar(match.operand) is None:
        raise invalid("match.operand must be a string, a boolean, an integer or a float")
    if match.operator not in _OPERATORS:
        raise invalid(f"match.operator is missing or unknown: {match.operator}")
    if not _is_comparable(match.operand):
        raise invalid("match.operand must be finite")
    if match.operator in _ORDERINGS and match.operand.WhichOneof("kind") not in ("int_value", "double_value"):
        raise invalid("an ordering needs an integer or float operand")


def _check_stored(key: str, value: pb.Value) -> None:
    if not _is_comparable(value):
        text = f"Attribute {key!r} has a value that cannot be matched: only texts, booleans and finite numbers can"
        raise wire_error(grpc.StatusCode.FAILED_PRECONDITION, pb.ERROR_SUB_STATUS_UNCATEGORIZED, text)


def _is_comparable(value: pb.Value) -> bool:
    scalar = _scalar(value)
    return scalar is not None and (not isinstance(scalar, float) or math.isfinite(scalar))


def _scalar(value: pb.Value) -> str | bool | int | float | None:
    kind = value.WhichOneof("kind")
    if kind == "string_value":
        return value.string_value
    if kind == "bool_value":
        return value.bool_value
    if kind == "int_value":
        return value.int_value
    return value.double_value if kind == "double_value" else None


def _matches(value: pb.Value, match: pb.AttributeMatch) -> bool:
    actual, operand = _scalar(value), _scalar(match.operand)
    are_booleans = isinstance(actual, bool), isinstance(operand, bool)
    is_equal = actual == operand and are_booleans[0] == are_booleans[1]  # Python takes True for 1
    if match.operator == pb.ATTRIBUTE_MATCH_OPERATOR_EQUAL:
        return is_equal
    if match.operator == pb.ATTRIBUTE_MATCH_OPERATOR_NOT_EQUAL:
        return not is_equal
    if any(are_booleans) or not isinstance(actual, int | float) or not isinstance(operand, int | float):
        return False
    if match.operator == pb.ATTRIBUTE_MATCH_OPERATOR_GREATER_THAN:
        return actual > operand
    if match.operator == pb.ATTRIBUTE_MATCH_OPERATOR_GREATER_THAN_OR_EQUAL:
        return actual >= operand
    if match.operator == pb.ATTRIBUTE_MATCH_OPERATOR_LESS_THAN:
        return actual < operand
    return actual <= operand
