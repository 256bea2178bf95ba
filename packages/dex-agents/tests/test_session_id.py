"""Which session ids are taken."""

import pytest

from dex_agents._client.session_id import MAX_SESSION_ID_CHARACTERS, check_session_id
from dex_agents.errors import ConfigurationError, InvalidSessionIdError


@pytest.mark.parametrize("session_id", ["a", "order-42", "user@example.com", "Gespräch 7", "x" * 200, "会話"])
def test_an_ordinary_id_is_taken_as_it_is(session_id: str) -> None:
    assert check_session_id(session_id) == session_id


@pytest.mark.parametrize(
    ("session_id", "rule"),
    [
        ("", "it is empty"),
        ("a/b", "contains '/'"),
        ("a$b", r"contains '\$'"),
        ("a:b", "contains ':'"),
        ("a\nb", "control"),
        ("a\x00b", "control"),
        ("a\x7fb", "control"),
        (" a", "begins or ends with a blank"),
        ("a ", "begins or ends with a blank"),
    ],
)
def test_a_bad_id_is_refused_with_the_value_and_the_rule(session_id: str, rule: str) -> None:
    with pytest.raises(InvalidSessionIdError, match=rule) as refused:
        check_session_id(session_id)
    assert repr(session_id) in str(refused.value)
    assert isinstance(refused.value, ConfigurationError)
    assert isinstance(refused.value, ValueError)


def test_a_long_id_is_refused_and_shown_in_short() -> None:
    with pytest.raises(InvalidSessionIdError, match="201 characters") as refused:
        check_session_id("x" * (MAX_SESSION_ID_CHARACTERS + 1))
    assert len(str(refused.value)) < 150
