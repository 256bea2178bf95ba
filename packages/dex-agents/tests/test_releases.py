"""Releases of frameworks compare by their numbers, not by their letters."""

from dex_agents.releases import release_numbers


def test_releases_compare_by_their_numbers() -> None:
    assert release_numbers("1.10") > release_numbers("1.9.3")
    assert release_numbers("2.0.rc1") == (2, 0)
