"""How sessions are searched for."""

import pytest

from dex_agents._client.session_search import session_query
from dex_agents.errors import ConfigurationError


def test_every_condition_names_its_attribute() -> None:
    assert session_query("shop", status=None, user=None) == "FlowType = 'shop'"
    assert (
        session_query("shop", status="running_model", user="eve")
        == "FlowType = 'shop' AND AgentStatus = 'running_model' AND AgentUser = 'eve'"
    )


def test_a_name_with_an_apostrophe_is_quoted_the_other_way() -> None:
    assert session_query("shop", status=None, user="O'Brien").endswith('AgentUser = "O\'Brien"')


@pytest.mark.parametrize("user", ["a'b\"c", "a\\", "x\ny"])
def test_a_value_that_cannot_be_quoted_is_refused(user: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be searched for"):
        session_query("shop", status=None, user=user)
