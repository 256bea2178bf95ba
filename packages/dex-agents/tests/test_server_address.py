"""Where the server is looked for."""

import pytest

from dex_agents._client.address import SERVER_ADDRESS_VARIABLE, named_server_address
from dex_agents.errors import ConfigurationError


def test_an_argument_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SERVER_ADDRESS_VARIABLE, "dex.example:8801")
    assert named_server_address("127.0.0.1:9000") == "127.0.0.1:9000"
    assert named_server_address(None) == "dex.example:8801"


def test_no_server_is_named_without_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SERVER_ADDRESS_VARIABLE, raising=False)
    assert named_server_address(None) is None
    monkeypatch.setenv(SERVER_ADDRESS_VARIABLE, "")
    assert named_server_address(None) is None


@pytest.mark.parametrize("address", ["[::1]:8801", "unix:/run/dex.sock", "dns:///dex.example:8801", "dex:1"])
def test_every_form_that_grpc_takes_is_taken(address: str) -> None:
    assert named_server_address(address) == address


@pytest.mark.parametrize(
    "address", ["", "8801", "localhost", "localhost:", ":8801", "localhost:0", "localhost:65536", "a:b"]
)
def test_what_is_no_address_is_refused_with_an_example(address: str) -> None:
    with pytest.raises(ConfigurationError, match="give host:port, for example") as refused:
        named_server_address(address)
    assert repr(address) in str(refused.value)


def test_a_url_is_refused_with_the_remedy() -> None:
    with pytest.raises(ConfigurationError, match="leave the scheme out"):
        named_server_address("http://localhost:8801")


def test_the_error_names_the_variable_that_a_bad_address_came_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SERVER_ADDRESS_VARIABLE, "nonsense")
    with pytest.raises(ConfigurationError, match=SERVER_ADDRESS_VARIABLE):
        named_server_address(None)
