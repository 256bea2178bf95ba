"""A release announces what the changelog says about it, or is refused."""

import pytest

from release_notes import main, section

CHANGELOG = """# Changelog

<!-- towncrier release notes start -->

## 0.2.0 (2026-12-01)

### Added

- Two.

## 0.1.0 (2026-11-30)

- One.
"""


def test_the_notes_are_the_section_of_the_version() -> None:
    assert section(CHANGELOG, "0.2.0") == "### Added\n\n- Two.\n"
    assert section(CHANGELOG, "0.1.0") == "- One.\n"


@pytest.mark.parametrize("version", ["0.3.0", "0.1", "0.1.0.1", "0x1.0"])
def test_a_version_that_the_changelog_does_not_have_is_refused(version: str) -> None:
    with pytest.raises(ValueError, match="says nothing about"):
        section(CHANGELOG, version)


def test_a_release_without_notes_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["999.0"]) == 1
    assert "towncrier build --version 999.0" in capsys.readouterr().err
