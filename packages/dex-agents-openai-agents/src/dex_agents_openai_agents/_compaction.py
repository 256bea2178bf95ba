"""Replaces the older items of a conversation by a summary, between two turns."""

import json
from dataclasses import dataclass, replace
from typing import Any, cast

from agents import Agent, ModelSettings, RunConfig, Runner, TResponseInputItem

from dex_agents.messages import Block, CallBlock, MediaBlock, Message, ResultBlock, TextBlock
from dex_agents.runner import CompactRequest, Usage
from dex_agents.summaries import (
    SummaryTask,
    block_tokens,
    estimate_scale,
    newest_to_keep,
    summary_for_model,
    summary_in,
    summary_task,
)
from dex_agents_openai_agents._state import SessionState, plain_items


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Where a conversation is cut.

    Attributes:
        task: What the summary's model call is given.
        newer: The items that are kept.
        kept_turns: How many turns they have at most: each begins with an item of the user, and a turn that was steered
            has more than one.
    """

    task: SummaryTask
    newer: list[TResponseInputItem]
    kept_turns: int


def find_cut(state: SessionState, request: CompactRequest) -> Cut | None:
    """Find where to cut, in front of what the user said; None where nothing can be summarized."""
    items = cast("list[dict[str, Any]]", plain_items(state.items))
    earlier = summary_in(items[0].get("content")) if items else None
    first = 0 if earlier is None else 1
    written = [_to_log(item) for item in items]
    sizes = [block_tokens(message.blocks) for message in written]
    scale = estimate_scale(sizes, request.context_tokens)
    cuts = [index for index, item in enumerate(items) if index > first and item.get("role") == "user"]
    cut = newest_to_keep(sizes, [*cuts, len(items)], int(request.keep_tokens / scale))
    if cut is None or cut <= first:
        return None
    task = summary_task(
        written[first:cut],
        window_tokens=request.window_tokens,
        earlier_summary=earlier,
        scale=scale,
    )
    return Cut(
        task=task,
        newer=state.items[cut:],
        kept_turns=sum(item.get("role") == "user" for item in items[cut:]),
    )


def compacted_state(state: SessionState, cut: Cut, summary: str) -> SessionState:
    """Return the state in which a summary stands for the older items."""
    head: TResponseInputItem = {"role": "user", "content": summary_for_model(summary)}
    return replace(state, items=[head, *cut.newer])


async def write_summary(agent: Agent[Any], config: RunConfig, task: SummaryTask) -> tuple[str, Usage]:
    """Make the summary's model call, with the agent's model.

    Raises:
        ValueError: The model wrote nothing.
    """
    own = agent.model_settings
    writer = Agent(
        name=f"{agent.name} (summary)",
        instructions=task.instructions,
        model=agent.model,
        model_settings=ModelSettings(
            extra_headers=own.extra_headers, extra_query=own.extra_query, extra_body=own.extra_body, store=own.store
        ),
    )
    plain = RunConfig(
        model=config.model,
        model_provider=config.model_provider,
        tracing_disabled=config.tracing_disabled,
        group_id=config.group_id,
        workflow_name=config.workflow_name,
    )
    result = await Runner.run(writer, task.prompt, run_config=plain, max_turns=1)
    text = str(result.final_output or "").strip()
    if not text:
        raise ValueError("the model wrote no summary")
    used = result.context_wrapper.usage
    return text, Usage(requests=used.requests, input_tokens=used.input_tokens, output_tokens=used.output_tokens)


def _to_log(item: dict[str, Any]) -> Message:
    """Write an item as the log would; what has no words (reasoning, ids) is nothing to summarize."""
    kind = str(item.get("type", "message"))
    if kind == "message":
        role = "assistant" if item.get("role") == "assistant" else "user"
        return Message(role=role, blocks=_content(item.get("content")))
    call_id, name = str(item.get("call_id") or item.get("id") or ""), str(item.get("name") or kind)
    if kind.endswith("_output"):
        output = item.get("output")
        text = output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)
        return Message(role="tool", blocks=(ResultBlock(call_id=call_id, status="ok", text=text),))
    if kind.endswith("_call"):
        arguments = item.get("arguments", item.get("action"))
        return Message(role="assistant", blocks=(CallBlock(call_id=call_id, name=name, arguments=arguments),))
    return Message(role="assistant", blocks=())


def _content(content: object) -> tuple[Block, ...]:
    if isinstance(content, str):
        return (TextBlock(text=content),)
    blocks: list[Block] = []
    for part in cast("list[dict[str, Any]]", content or []):
        text = part.get("text", part.get("refusal"))
        if isinstance(text, str):
            blocks.append(TextBlock(text=text))
        else:
            blocks.append(MediaBlock(media_type=str(part.get("type", "file")).removeprefix("input_")))
    return tuple(blocks)
