"""Toolsets whose tools could not be listed, which ADK leaves out in silence."""

from collections.abc import Callable, Mapping
from typing import Any

from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.auth.auth_tool import AuthConfig
from google.adk.models.llm_request import LlmRequest
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.tool_context import ToolContext
from typing_extensions import override


class WatchedToolset(BaseToolset):
    """Passes everything on to the user's toolset and reports a failed listing."""

    def __init__(self, inner: BaseToolset, report: Callable[[BaseToolset, Exception], None]) -> None:
        super().__init__()
        self._inner = inner
        self._report = report
        # The inner toolset keeps its own cache.
        self._use_invocation_cache = False

    @override
    async def get_tools(self, readonly_context: ReadonlyContext | None = None) -> list[BaseTool]:
        try:
            return await self._inner.get_tools_with_prefix(readonly_context)
        except Exception as error:
            self._report(self._inner, error)
            raise

    @override
    async def process_llm_request(self, *, tool_context: ToolContext, llm_request: LlmRequest) -> None:
        await self._inner.process_llm_request(tool_context=tool_context, llm_request=llm_request)

    @override
    def get_auth_config(self) -> AuthConfig | None:
        return self._inner.get_auth_config()

    @override
    async def close(self) -> None:
        """Leave the user's toolset open: it outlives the Step."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class ToolListingError(Exception):
    """The tools of a toolset could not be listed; another attempt of the Step lists them again."""


def raise_listing_failure(failures: Mapping[str, Exception]) -> None:
    """Raise when there are toolsets whose tools could not be listed.

    Args:
        failures: What went wrong, by the toolset's class.

    Raises:
        ToolListingError: The first of them.
    """
    for name, error in failures.items():
        raise ToolListingError(f"the tools of {name} could not be listed: {error}") from error
