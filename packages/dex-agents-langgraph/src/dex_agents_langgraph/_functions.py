"""What the code of a graph's nodes holds: the values in the closures of its functions, and the globals it names."""

from collections.abc import Iterator
from types import FunctionType


def functions_of(runnable: object) -> Iterator[FunctionType]:
    """Iterate over the functions that LangGraph made a node of."""
    for name in ("afunc", "func"):
        given: object = getattr(runnable, name, None)
        function = getattr(given, "__func__", given)  # of a method, too
        if isinstance(function, FunctionType):
            yield function


def closure_of(function: FunctionType) -> Iterator[object]:
    """Iterate over the values in a function's closure."""
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not assigned yet
            continue


def globals_of(function: FunctionType) -> Iterator[object]:
    """Iterate over the values of the globals that a function names."""
    for name in function.__code__.co_names:
        if name in function.__globals__:
            yield function.__globals__[name]
