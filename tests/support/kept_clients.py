"""Chat models of LangChain whose HTTP clients must not be collected while tests run.

LangChain keeps the clients of the last 128 addresses. One that it forgets is closed by a task in whatever event loop
runs at that moment; when its connections belong to the loop of a test that is over, they stay half closed, and Python
warns of them in the middle of another test.
"""

from typing import Final, TypeVar

from langchain_core.language_models import BaseChatModel

ModelT = TypeVar("ModelT", bound=BaseChatModel)

_kept: Final[list[BaseChatModel]] = []


def kept(model: ModelT) -> ModelT:
    """Keep a model, and so its clients, until the process ends."""
    _kept.append(model)
    return model
