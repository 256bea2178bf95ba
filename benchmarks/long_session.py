"""What a long session costs: what it stores, and what its turns cost, after hundreds and thousands of turns.

```bash
uv run python benchmarks/long_session.py --json
```

It takes about ten minutes on two cores, most of them in the plain runs, and tells on stderr how far it is.

A Pydantic AI agent with a scripted model answers a question of 100 characters with 600; the embedded engine, the Worker
and the client run in this process, with the engine's file on a real disk (`--directory`). kB are 1,000 bytes.

- stored_messages_kb: after turn 200, 400, 600 and 800 of a session with an 8,000-token window and a limit of 100
  messages, the bytes of AgentMessages, AgentMessageChunks and AgentMessageIndex.
- live_state_kb: the same for all that the session's run stores then, by the engine's own count.
- turn_last_over_first: CPU time of this process in its turns 701 to 800, over that in a fresh session whose turns are
  taken in turn with them (medians).
- uncompacted_added_last_over_first: 2,000 turns without compaction, each right after a plain run with the same history.
  What the session's turn costs beyond the plain run, in CPU time: median of the last hundred over the first hundred.
- written_over_content: of that session, all bytes of values that it ever stored (replaced and deleted ones, queued
  messages and scheduled Steps included: the engine's budget with an endless history), over its messages as JSON, once.
"""

import argparse
import asyncio
import json
import random
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from dex_agents import AgentHost, AgentSessionFlow, AgentSessionOptions
from dex_agents.session import AgentSession
from dex_agents_embedded import EmbeddedEngine
from dex_agents_pydantic_ai import session_flow

QUESTION = 100
ANSWER = 600
WINDOW_TOKENS = 8000
RETAINED_MESSAGES = 100
MEASURED = 100
_ENDLESS = 1 << 40
_PROSE = """
about above across after again against almost along already although always among amount animal
another answer around arrive autumn balance basket beautiful because become before began behind believe
below beside better between beyond bicycle board borrow bottle branch bread bridge bright bring
brother building button candle carefully carry castle catch centre century chair change cheap choose
church circle clean climb clock close cloud coffee colour common company compare complete contain
corner country course cover cross cupboard customer danger daughter decide delivery different difficult direction
discover distance divide doctor double drawer dream during early earth effect either electric empty
enough evening every example except expect explain family famous farmer father favour feather field
figure finger finish flower follow forest forget forward friend garden gather general gentle glass
gold ground group guess guide hammer handle happen harbour heavy height history holiday hospital
hundred hungry imagine important include increase inside instead interest invite island journey kitchen knife
knowledge ladder lamp language large laugh leather letter library listen little machine manage market
material measure medicine member middle minute mirror modern moment money morning mother mountain music
narrow nature nearly needle neighbour never night nothing notice number object ocean office often
orange order other outside paper parent party patient pattern pencil people perhaps person picture
piece pleasant pocket point possible potato prepare present pretty price problem promise provide public
purpose quarter question quick quiet railway rather reach ready reason receive remember repeat return
river round sailor season second secret separate several shadow shape shelf shoulder silver simple
sister sleep slowly smooth soldier something sometimes special spring square station steady stone store
story straight strange street strong student sudden sugar summer sunday supply surface surprise sweet
table teacher thank their there thing thirty thought thousand through ticket together tomorrow towards
travel trouble twelve under understand until useful usual valley village visit voice waiter water
weather weight welcome wheel where whether while white whole window winter within without wonder
wooden world write yellow yesterday
"""
_WORDS = _PROSE.split()
_MESSAGE_NAMES = ("AgentMessages", "AgentMessageChunks", "AgentMessageIndex")


def _text(number: int, characters: int) -> str:
    """Return words of so many characters, the same for each number; they compress about as prose does."""
    dice = random.Random(number)
    text = str(number)
    while len(text) < characters:
        text += f" {dice.choice(_WORDS)}"
    return text[:characters]


def _respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    del info
    newest = messages[-1]
    assert isinstance(newest, ModelRequest)
    prompt = str(getattr(newest.parts[-1], "content", ""))
    # A summary of an ordinary length, about 200 tokens.
    if prompt.endswith("Summary:"):
        return ModelResponse(parts=[TextPart(_text(0, 800))])
    return ModelResponse(parts=[TextPart(_text(int(prompt.split()[0]), ANSWER))])


def make_agent() -> Agent[object, str]:
    """Build the agent."""
    return Agent(FunctionModel(_respond), name="long", instructions="Be brief.")


class Store:
    """Reads from the engine's file what one session stores."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "engine.db"

    def bytes_of(self, session_id: str) -> tuple[int, int, int]:
        """Return the bytes of the session's messages, of all that it stores, and of all that it ever stored."""
        with closing(sqlite3.connect(f"file:{self._path}?mode=ro", uri=True)) as connection:

            def one(statement: str, *parameters: object) -> int:
                return int(connection.execute(statement, parameters).fetchone()[0] or 0)

            run = one("SELECT run_key FROM run WHERE flow_id = ?", session_id)
            marks = ",".join("?" * len(_MESSAGE_NAMES))
            messages = one(
                "SELECT sum(length(value)) FROM attribute WHERE run_key = ? "
                f"AND (map_name IN ({marks}) OR instance IN ({marks}))",
                run,
                *_MESSAGE_NAMES,
                *_MESSAGE_NAMES,
            )
            live = one("SELECT live_bytes FROM run_usage WHERE run_key = ?", run)
            replaced = one("SELECT sum(bytes) FROM replaced_bytes WHERE bucket_key >> 32 = ?", run)
        return messages, live, live + replaced


async def _cpu_of(work: Callable[[], Awaitable[object]]) -> float:
    before = time.process_time()
    await work()
    # What a turn leaves to be done (the next wait, the commit's thread) belongs to it.
    await asyncio.sleep(0.01)
    return time.process_time() - before


async def measure_compacted(flow: AgentSessionFlow, directory: Path, turns: int) -> dict[str, object]:
    """Measure a session with compaction."""
    stored: dict[str, float] = {}
    live: dict[str, float] = {}
    old: list[float] = []
    fresh: list[float] = []
    async with EmbeddedEngine(directory) as engine, AgentHost(flow, address=engine.address) as host:
        store, session, second = Store(directory), host.session("long"), host.session("fresh")
        await session.start()
        await second.start()
        for number in range(1, turns + 1):
            old.append(await _cpu_of(lambda number=number: session.ask(_text(number, QUESTION))))
            if number > turns - MEASURED:
                fresh.append(await _cpu_of(lambda number=number: second.ask(_text(number, QUESTION))))
            _tell(number, turns, "with compaction", old)
            if number % (turns // 4) == 0:
                messages, everything, _ = store.bytes_of("long")
                stored[str(number)] = round(messages / 1000, 1)
                live[str(number)] = round(everything / 1000, 1)
        summary = (await session.snapshot()).summary
        assert summary is not None
    return {
        "stored_messages_kb": stored,
        "live_state_kb": live,
        "turn_last_over_first": round(statistics.median(old[-MEASURED:]) / statistics.median(fresh), 3),
    }


async def measure_uncompacted(
    agent: Agent[object, str], flow: AgentSessionFlow, directory: Path, turns: int
) -> dict[str, object]:
    """Measure a session without compaction, each turn beside a plain run."""
    added: list[float] = []
    history: list[ModelMessage] = []

    async def plainly(text: str) -> None:
        nonlocal history
        history = (await agent.run(text, message_history=history or None)).all_messages()

    engine = EmbeddedEngine(directory, history_events=_ENDLESS, max_flow_state_bytes=_ENDLESS)
    async with engine, AgentHost(flow, address=engine.address) as host:
        session = host.session("long")
        await session.start()
        for number in range(1, turns + 1):
            text = _text(number, QUESTION)
            plain = await _cpu_of(lambda text=text: plainly(text))
            added.append(await _cpu_of(lambda text=text: session.ask(text)) - plain)
            _tell(number, turns, "without compaction, beyond a plain run", added)
        _, _, written = Store(directory).bytes_of("long")
        content = await _content(session)
    first, last = statistics.median(added[:MEASURED]), statistics.median(added[-MEASURED:])
    return {
        "uncompacted_added_last_over_first": round(last / first, 3),
        "written_over_content": round(written / content, 3),
    }


def _tell(turn: int, turns: int, what: str, seconds: list[float]) -> None:
    if turn % MEASURED == 0:
        newest = 1000 * statistics.median(seconds[-MEASURED:])
        print(f"{turn} of {turns} turns: {newest:.1f} ms of CPU time {what}", file=sys.stderr, flush=True)


async def _content(session: AgentSession) -> int:
    return sum([len(saved.model_dump_json().encode()) async for saved in session.iter_messages()])


async def measure(directory: Path, turns: int, uncompacted_turns: int) -> dict[str, object]:
    """Measure both sessions."""
    agent = make_agent()
    options = AgentSessionOptions(compaction=WINDOW_TOKENS, retained_message_limit=RETAINED_MESSAGES)
    compacted = await measure_compacted(session_flow(agent, options=options), directory / "compacted", turns)
    whole = await measure_uncompacted(agent, session_flow(agent), directory / "whole", uncompacted_turns)
    return {**compacted, **whole}


def main() -> None:
    """Read the command line and print the numbers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--directory", type=Path, default=Path(), help="a directory on the disk to measure")
    parser.add_argument("--turns", type=int, default=800, help="with compaction; 400 at least, a multiple of 4")
    parser.add_argument("--uncompacted-turns", type=int, default=2000, help="without compaction; 200 at least")
    options = parser.parse_args()
    if options.turns < 4 * MEASURED or options.turns % 4 or options.uncompacted_turns < 2 * MEASURED:
        sys.exit("too few turns to measure: see --help")
    with tempfile.TemporaryDirectory(prefix=".benchmark-", dir=options.directory) as directory:
        numbers = asyncio.run(measure(Path(directory), options.turns, options.uncompacted_turns))
    if options.json:
        print(json.dumps(numbers))
    else:
        for name, value in numbers.items():
            print(f"{name:34} {value}")


if __name__ == "__main__":
    main()
