"""A stand-in that keeps ADK from running a tool which the session runs in a Step of its own."""

from typing import Any

from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext
from typing_extensions import override


class DeferredTool(BaseTool):
    """Looks like a tool that takes long: ADK pauses at its calls.

    It takes the real tool's place after the declarations were written, so that the model is shown the real one.

    Attributes:
        inner: The real tool; None when the model named one that does not exist.
    """

    def __init__(self, name: str, inner: BaseTool | None) -> None:
        super().__init__(name=name, description="" if inner is None else inner.description, is_long_running=True)
        self.inner = inner

    @override
    async def run_async(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        return None
