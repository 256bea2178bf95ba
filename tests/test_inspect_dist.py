"""A release with a planted fault is refused, and two builds of one commit are the same bytes."""

import io
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from inspect_dist import main, problems

ROOT = Path(__file__).parents[1]
VERSION = (ROOT / "VERSION").read_text(encoding="utf-8").strip()
ADAPTER = f"dex_agents_pydantic_ai-{VERSION}"
# A build takes 5 to 15 s where the build tools are in uv's cache.
pytestmark = pytest.mark.timeout(300)


def build(directory: Path) -> Path:
    command = ["uv", "build", "--all-packages", "--no-sources", "--clear", "--out-dir", str(directory)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert ran.returncode == 0, ran.stderr
    return directory


def rewrite(wheel: Path, change: Callable[[str, bytes], bytes | None]) -> None:
    """Write a wheel again with what `change` makes of each member; None leaves it out."""
    with zipfile.ZipFile(wheel) as source:
        members = {name: source.read(name) for name in source.namelist()}
    with zipfile.ZipFile(wheel, "w") as target:
        for name, data in members.items():
            changed = change(name, data)
            if changed is not None:
                target.writestr(name, changed)


def change_metadata(wheel: Path, old: str, new: str) -> None:
    def change(name: str, data: bytes) -> bytes:
        if not name.endswith("/METADATA"):
            return data
        text = data.decode()
        assert old in text
        return text.replace(old, new, 1).encode()

    rewrite(wheel, change)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("built"))


@pytest.fixture
def dist(built: Path, tmp_path: Path) -> Path:
    """A copy of the build, to plant faults in."""
    return Path(shutil.copytree(built, tmp_path / "dist"))


@pytest.fixture
def wheel(dist: Path) -> Path:
    return dist / f"{ADAPTER}-py3-none-any.whl"


def test_a_build_without_workspace_sources_is_a_release_and_names_the_order_of_publishing(
    built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "output"

    assert main([str(built), "--github-output", str(output)]) == 0
    assert output.read_text() == capsys.readouterr().out
    assert output.read_text().startswith('projects=["dex-agents-embedded", "dex-agents", "dex-agents-claude-agent-sdk"')


def test_two_builds_give_the_same_bytes(built: Path, tmp_path: Path) -> None:
    again = build(tmp_path / "again")

    assert main([str(built), "--same-as", str(again)]) == 0


def test_a_build_that_is_not_the_same_bytes_is_refused(
    built: Path, dist: Path, wheel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rewrite(wheel, lambda _, data: data)

    assert main([str(built), "--same-as", str(dist)]) == 1
    assert capsys.readouterr().err == f"{wheel.name}: two builds differ\n"


def test_a_core_of_another_version_is_refused(dist: Path, wheel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change_metadata(wheel, f"Requires-Dist: dex-agents=={VERSION}", "Requires-Dist: dex-agents>=0.0.1")

    assert main([str(dist)]) == 1
    assert f"{wheel.name}: requires dex-agents>=0.0.1; it must be dex-agents=={VERSION}" in capsys.readouterr().err


def test_an_adapter_without_the_core_is_refused(dist: Path, wheel: Path) -> None:
    change_metadata(wheel, f"Requires-Dist: dex-agents=={VERSION}\n", "")

    assert f"{wheel.name}: requires [] of this repository; it must be ['dex-agents']" in problems(dist)


def test_another_version_is_refused(dist: Path, wheel: Path) -> None:
    change_metadata(wheel, f"Version: {VERSION}", "Version: 99.0")

    assert f"{wheel.name}: is 99.0; VERSION is {VERSION}" in problems(dist)


def test_a_stray_dependency_is_refused(dist: Path, wheel: Path) -> None:
    change_metadata(
        wheel, "Requires-Dist: pydantic-ai-slim", "Requires-Dist: requests\nRequires-Dist: pydantic-ai-slim"
    )

    assert problems(dist) == [f"{wheel.name}: requires requests, which its project does not declare"]


def test_a_direct_url_is_refused(dist: Path, wheel: Path) -> None:
    url = "https://example.invalid/pydantic_ai_slim.whl"
    change_metadata(
        wheel, "Requires-Dist: pydantic-ai-slim", f"Requires-Dist: other @ {url}\nRequires-Dist: pydantic-ai-slim"
    )

    assert f"{wheel.name}: requires the direct URL {url}; require a release" in problems(dist)


@pytest.mark.parametrize("missing", ["py.typed", "_runner.py", "licenses/LICENSE"])
def test_a_missing_file_is_refused(dist: Path, wheel: Path, missing: str) -> None:
    rewrite(wheel, lambda name, data: None if name.endswith(f"/{missing}") else data)

    (problem,) = problems(dist)
    assert problem.startswith(f"{wheel.name}: lacks ")
    assert problem.endswith(missing)


def test_a_file_that_does_not_belong_in_a_wheel_is_refused(dist: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel, "a") as target:
        target.writestr("tests/test_all.py", "")
        target.writestr("dex_agents_pydantic_ai/left_over.py", "")

    assert problems(dist) == [
        f"{wheel.name}: holds tests/test_all.py, which is no file of its project",
        f"{wheel.name}: holds dex_agents_pydantic_ai/left_over.py, which is no file of its project",
    ]


def test_a_missing_distribution_and_a_foreign_one_are_refused(dist: Path, wheel: Path) -> None:
    wheel.unlink()
    with tarfile.open(dist / "other-1.0.tar.gz", "w:gz") as foreign:
        text = b"Metadata-Version: 2.4\nName: other\nVersion: 1.0\n"
        member = tarfile.TarInfo("other-1.0/PKG-INFO")
        member.size = len(text)
        foreign.addfile(member, io.BytesIO(text))

    assert problems(dist) == [
        "other-1.0.tar.gz: is no project of this repository",
        "dex-agents-pydantic-ai: built sdist; a release has one sdist and one wheel",
    ]


def test_a_file_without_metadata_is_refused(dist: Path, wheel: Path) -> None:
    rewrite(wheel, lambda name, data: None if name.endswith("/METADATA") else data)

    assert f"{wheel.name}: has 0 metadata files instead of one; build it again" in problems(dist)
