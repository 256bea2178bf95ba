"""Finding Flows by their fields and indexed Attributes."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from dex import (
    Attribute,
    AttributeIndex,
    DexServiceError,
    Flow,
    IndexType,
    PersistenceSchema,
    StartFlowOptions,
    StepList,
)
from dex.dexpb import dex_pb2 as pb

from dex_agents_embedded import EmbeddedEngine
from dex_agents_embedded._query import Comparison, parse
from dex_agents_embedded._search import attribute_clause
from engine_world import World
from test_waits import Watched, status

share = Attribute("Share", float, index=AttributeIndex(IndexType.DOUBLE))
is_done = Attribute("IsDone", bool, index=AttributeIndex(IndexType.BOOL))
tags = Attribute("Tags", list[str], index=AttributeIndex(IndexType.KEYWORD_ARRAY))
body = Attribute("Body", str, index=AttributeIndex(IndexType.FULL_TEXT))
due = Attribute("Due", datetime, index=AttributeIndex(IndexType.DATETIME))


class Listed(Flow[None]):
    def get_steps(self) -> StepList[None]:
        return StepList[None].without_start_step()

    def get_persistence_schema(self) -> PersistenceSchema:
        return PersistenceSchema.of(share, is_done, tags, body, due)


async def found(world: World, query: str) -> set[str]:
    return {flow.flow_id for flow in (await world.client.search_flows(query, 100)).flows}


async def test_flows_are_found_by_their_fields_and_indexed_attributes(tmp_path: Path) -> None:
    flow = Watched()
    began = datetime.now(UTC)
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        for number in range(4):
            flow_id = f"flow-{number}"
            await world.client.start_flow(flow, flow_id, None)
            await world.call(flow.set_status, flow_id, "waiting" if number % 2 else "it's running")
            await world.call(flow.set_score, flow_id, number)
        await world.call(flow.send, "flow-3", "end")
        await world.finish("flow-3")
        assert await found(world, "") == {"flow-0", "flow-1", "flow-2", "flow-3"}
        assert await found(world, "FlowType = 'Watched' AND AgentStatus = 'waiting'") == {"flow-1", "flow-3"}
        assert await found(world, "AgentStatus='waiting' and ExecutionStatus = 'Running'") == {"flow-1"}
        assert await found(world, "AgentStatus = 'it''s running'") == {"flow-0", "flow-2"}
        assert await found(world, 'FlowStatus = "COMPLETED"') == {"flow-3"}
        assert await found(world, "FlowId = 'flow-2'") == {"flow-2"}
        assert await found(world, "Score >= 1 AND Score < 3") == {"flow-1", "flow-2"}
        assert await found(world, f"StartTime >= '{began.isoformat()}'") == {"flow-0", "flow-1", "flow-2", "flow-3"}
        assert await found(world, f"StartTime < '{began.isoformat()}'") == set()
        assert await found(world, "CloseTime < '2999-01-01'") == {"flow-3"}
        await world.call(flow.forget_status, "flow-1")
        assert await found(world, "AgentStatus = 'waiting'") == {"flow-3"}
        page = await world.client.search_flows("Score = 2", 1)
        assert page.flows[0].flow_id == "flow-2"
        attributes = page.flows[0].indexed_attributes
        assert (attributes["AgentStatus"].data, attributes["Score"].data) == ("it's running", 2)


async def test_a_long_result_comes_in_pages_newest_first(tmp_path: Path) -> None:
    flow = Watched()
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        for number in range(5):
            await world.client.start_flow(flow, f"flow-{number}", None)
        seen: list[str] = []
        token = ""
        for _ in range(3):
            page = await world.client.search_flows("FlowType = 'Watched'", 2, token)
            seen += [entry.flow_id for entry in page.flows]
            token = page.next_page_token
        assert seen == ["flow-4", "flow-3", "flow-2", "flow-1", "flow-0"]
        assert token == ""


async def test_a_query_that_is_not_understood_is_refused(tmp_path: Path) -> None:
    async with World(tmp_path, Watched(), Listed()) as world:
        await world.start_worker()
        for query, text in (
            ("AgentStatus = 'a' FlowId = 'b'", "joined by AND and OR"),
            ("AgentStatus = 'a' AND", "a field, an operator and a value"),
            ("(AgentStatus = 'a'", r"'\)' is missing before its end"),
            ("(" * 21 + "FlowId = 'a'" + ")" * 21, "nested more than 20 deep"),
            (" OR ".join(["FlowId = 'a'"] * 21), "a query has at most 20 comparisons"),
            ("FlowId IN ()", "no value"),
            ("FlowId IN ('a'", r"'\)' is missing"),
            ("Score BETWEEN 1", "'AND' is missing"),
            ("Tags > 'a'", "look for one element"),
            ("Score = 'x'", "Score is compared with a number, 'x' is none"),
            ("Score IN (12, 'x')", "'x' is none"),
            ("Score BETWEEN 5 AND 'nan'", "'nan' is none"),
            ("Score STARTS_WITH '12'", "Score is compared with =, .* not with STARTS_WITH"),
            ("Share = true", "Share is compared with a number, 'true' is none"),
            ("Share STARTS_WITH '0'", "Share is compared with =, .* not with STARTS_WITH"),
            ("Body STARTS_WITH 'a'", "look for words"),
            ("Due > 'tomorrow'", "ISO 8601"),
            ("nonsense = 'a'", "'nonsense' is no field"),
            ("FlowId", "a field, an operator and a value"),
            ("FlowId = b", "quote it"),
            ("FlowId > 'b'", "FlowId is compared with ="),
            ("StartTime > 'yesterday'", "ISO 8601"),
            ("FlowStatus = 'Sleeping'", "no Flow status"),
            ("FlowId = 'a' AND ; DROP TABLE run", "cannot read"),
        ):
            with pytest.raises(DexServiceError, match=text):
                await world.client.search_flows(query, 10)


async def test_whole_numbers_are_found_exactly_and_as_the_text_of_keywords(tmp_path: Path) -> None:
    flow = Watched()
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        for flow_id, number in (("even", 2**53), ("odd", 2**53 + 1), ("dozen", 12)):
            await world.client.start_flow(flow, flow_id, None)
            await world.call(flow.set_score, flow_id, number)
            await world.call(flow.set_status, flow_id, str(number))
        for query, expected in {
            f"Score = {2**53 + 1}": {"odd"},
            f"Score = '{2**53 + 1}'": {"odd"},
            f"Score != {2**53}": {"odd", "dozen"},
            f"Score IN ({2**53}, '12')": {"even", "dozen"},
            f"Score NOT IN ({2**53}, 12.0)": {"odd"},
            "Score = 12.5": set[str](),
            "Score = '1.2e1'": {"dozen"},
            "Score < '13'": {"dozen"},
            "Score < 1" + "0" * 400: {"even", "odd", "dozen"},
            "AgentStatus = 12": {"dozen"},
            f"AgentStatus IN ({2**53 + 1}, 'x')": {"odd"},
            "AgentStatus STARTS_WITH '900'": {"even", "odd"},
        }.items():
            assert await found(world, query) == expected, query


async def test_initial_attributes_are_found_too_also_after_a_restart(tmp_path: Path) -> None:
    flow = Watched()
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        options = StartFlowOptions().with_attribute(status, "fresh")
        await world.client.start_flow(flow, "early", None, options)
        assert await found(world, "AgentStatus = 'fresh'") == {"early"}
    async with World(tmp_path, flow, engine=EmbeddedEngine(tmp_path / "data")) as world:
        assert await found(world, "AgentStatus = 'fresh'") == {"early"}


NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_each_index_type_is_found_by_what_it_is(tmp_path: Path, is_restarted: bool) -> None:
    flow = Listed()
    async with World(tmp_path, flow) as world:
        await world.start_worker()
        for number, (some_tags, text) in enumerate(
            [(["red", "blue"], "The quick brown Fox"), (["red, blue", 'grün "1"'], "a slow fox"), ([], "")]
        ):
            options = StartFlowOptions().with_attribute(share, number / 2).with_attribute(is_done, number == 1)
            options = options.with_attribute(tags, some_tags).with_attribute(body, text)
            # The same moments as texts of other time zones, which are in another order.
            moment = (NOON + timedelta(hours=number)).astimezone(timezone(timedelta(hours=-5 * number)))
            await world.client.start_flow(flow, f"{number}", None, options.with_attribute(due, moment))
        if not is_restarted:
            await check_listed(world)
    if is_restarted:
        async with World(tmp_path, flow, engine=EmbeddedEngine(tmp_path / "data")) as world:
            await check_listed(world)


async def check_listed(world: World) -> None:
    for query, expected in {
        "Share = 0.5": "1",
        "Share >= '0.5'": "12",
        "Share BETWEEN 0.1 AND 0.9": "1",
        "Share NOT BETWEEN 0.1 AND 0.9": "02",
        "Share IN (0, 1)": "02",
        "IsDone = true": "1",
        "IsDone != true": "02",
        "Tags = 'red'": "0",
        "Tags = 'red, blue'": "1",
        "Tags = 'grün \"1\"'": "1",
        "Tags = 'grün'": "",
        "Tags = ', '": "",
        "Tags IN ('blue', 'green')": "0",
        "Tags != 'red'": "12",
        "Tags NOT IN ('blue', 'red, blue')": "2",
        "Body = 'fox'": "01",
        "Body = 'Brown FOX'": "0",
        "Body = 'brow'": "",
        "Body != 'fox'": "2",
        f"Due = '{NOON.isoformat()}'": "0",
        f"Due > '{NOON.isoformat()}'": "12",
        "Due BETWEEN '2026-05-01T12:30:00Z' AND '2026-05-01T13:30:00Z'": "1",
        "FlowId = '0' OR FlowId = '2'": "02",
        "FlowId = '0' OR FlowId = '2' AND IsDone = true": "0",
        "(FlowId = '0' OR FlowId = '1') AND IsDone = true": "1",
        "FlowId in ('0', '1') and (Share < 0.1 or Body = 'slow')": "01",
        "FlowId NOT IN ('0')": "12",
        "WorkflowType STARTS_WITH 'List'": "012",
        "FlowType NOT STARTS_WITH 'List'": "",
        "CloseTime IS NULL": "012",
        "CloseTime IS NOT NULL": "",
        "Share IS NULL": "",
        "Share IS NOT NULL AND ExecutionStatus IN ('Running', 'Failed')": "012",
    }.items():
        assert await found(world, query) == set(expected), query


def test_what_an_earlier_version_stored_is_found_as_it_was() -> None:
    """Of texts and times that have not been written since, the row holds the text alone."""
    with closing(sqlite3.connect(":memory:")) as rows:
        rows.execute("CREATE TABLE one (text, number)")
        rows.executemany("INSERT INTO one VALUES (?, NULL)", [("The Fox",), (NOON.isoformat(),), ("no JSON",)])
        for kind, query, expected in (
            (pb.INDEX_TYPE_TEXT, "Key = 'The Fox'", "The Fox"),
            (pb.INDEX_TYPE_DATETIME, f"Key = '{NOON.isoformat()}'", NOON.isoformat()),
            (pb.INDEX_TYPE_KEYWORD_ARRAY, "Key = 'no JSON'", None),
        ):
            comparison = parse(query)
            assert isinstance(comparison, Comparison)
            clause = attribute_clause(kind, comparison)
            found = rows.execute(f"SELECT text FROM one WHERE {clause.sql}", clause.values).fetchall()  # noqa: S608
            assert found == ([(expected,)] if expected else [])
