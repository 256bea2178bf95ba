"""Which adapters and releases this environment has: the tests of one framework run where no other is installed."""

from importlib.metadata import version
from importlib.util import find_spec

import pytest
from packaging.version import Version


def is_installed(package: str) -> bool:
    """Whether a top-level package is there at all.

    It is not imported: an adapter that is there and cannot be imported is broken, and its tests must fail.
    """
    return find_spec(package) is not None


def skip_unless_installed(package: str) -> None:
    """Skip a test, or at the top of a module all of its tests, where an adapter is not installed."""
    if not is_installed(package):
        pytest.skip(f"{package} is not installed", allow_module_level=True)


def is_older(distribution: str, release: str) -> bool:
    """Whether an older release is installed, so that a test of what came with this one has nothing to test.

    Looking for a module instead would skip the test as well when a newer release moves it.
    """
    return Version(version(distribution)) < Version(release)
