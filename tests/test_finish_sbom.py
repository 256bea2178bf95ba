"""The bill of materials of a release names its own packages with their versions, and is the same for one commit."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from finish_sbom import finish, main

ROOT = Path(__file__).parents[1]
VERSION = (ROOT / "VERSION").read_text(encoding="utf-8").strip()
PROJECTS = {path.parent.name for path in ROOT.glob("packages/*/pyproject.toml")}
EXPORT = ["uv", "export", "--quiet", "--locked", "--all-packages", "--no-default-groups", "--format", "cyclonedx1.5"]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two exports of this workspace."""
    paths = [tmp_path_factory.mktemp("sbom") / f"{number}.cdx.json" for number in (1, 2)]
    for path in paths:
        command = [*EXPORT, "--preview-features", "sbom-export", "--output-file", str(path)]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=50)
    return paths


@pytest.fixture
def document(exported: list[Path]) -> dict[str, Any]:
    return json.loads(exported[0].read_text(encoding="utf-8"))


def test_our_packages_and_the_root_get_their_version_and_package_url(exported: list[Path], tmp_path: Path) -> None:
    path = Path(shutil.copy(exported[0], tmp_path))

    assert main([str(path)]) == 0

    written = json.loads(path.read_text(encoding="utf-8"))
    own = {each["name"]: (each["version"], each["purl"]) for each in written["components"] if each["name"] in PROJECTS}
    assert own == {name: (VERSION, f"pkg:pypi/{name}@{VERSION}") for name in PROJECTS}
    assert written["metadata"]["component"]["version"] == VERSION
    assert written["metadata"]["component"]["purl"] == f"pkg:generic/dex-agents-workspace@{VERSION}"


def test_two_exports_of_one_commit_become_the_same_bytes(exported: list[Path], tmp_path: Path) -> None:
    paths = [Path(shutil.copy(path, tmp_path)) for path in exported]
    assert paths[0].read_bytes() != paths[1].read_bytes()

    assert [main([str(path)]) for path in paths] == [0, 0]
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_the_serial_number_follows_from_the_contents(document: dict[str, Any]) -> None:
    other = json.loads(json.dumps(document))

    finish(document, "1.0", PROJECTS, "2026-12-01T00:00:00+00:00")
    finish(other, "1.1", PROJECTS, "2026-12-01T00:00:00+00:00")

    assert document["metadata"]["timestamp"] == "2026-12-01T00:00:00+00:00"
    assert document["serialNumber"].startswith("urn:uuid:")
    assert document["serialNumber"] != other["serialNumber"]


def test_without_a_commit_there_is_no_time(document: dict[str, Any]) -> None:
    finish(document, "1.0", PROJECTS, None)

    assert "timestamp" not in document["metadata"]


def test_a_missing_project_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="of the workspace; it must be"):
        finish(document, "1.0", {*PROJECTS, "dex-agents-other"}, None)


def test_a_component_that_nobody_can_look_up_is_refused(
    tmp_path: Path, document: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    (click,) = (each for each in document["components"] if each["name"] == "click")
    del click["purl"]
    path = tmp_path / "sbom.cdx.json"
    path.write_text(json.dumps(document), encoding="utf-8")

    assert main([str(path)]) == 1
    expected = "sbom.cdx.json: the component click has no version or no package URL\n"
    assert capsys.readouterr().err.endswith(expected)  # without git there is a line about that too
