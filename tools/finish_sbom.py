"""Say in a software bill of materials what its exporter leaves out: the versions of what is released.

    python tools/finish_sbom.py dist/sbom.cdx.json

The packages of a workspace have no version in its lock, so uv writes none. This gives them the version and the package
URL under which an index has them, and replaces what differs between two exports: the time is that of the commit, and
the serial number follows from the contents. A component without a version or a package URL is refused.
"""

from __future__ import annotations

import argparse
import json
import sys
import uuid
from pathlib import Path
from typing import Any, Final

from release_projects import git, read_projects, read_version

ROOT: Final = Path(__file__).parents[1]
# What uv marks a package of the workspace with, and where.
WORKSPACE: Final = "uv:workspace:path"
# The root is no distribution, so no index has it.
ROOT_NAME: Final = "dex-agents-workspace"


def commit_time(root: Path) -> str | None:
    """Read when the commit was made, in ISO 8601; None where there is no git work tree."""
    if not (root / ".git").exists():
        return None
    return git(root, "log", "-1", "--format=%cI").strip()


def finish(document: dict[str, Any], version: str, projects: set[str], time: str | None) -> None:
    """Complete a CycloneDX document in place.

    Args:
        document: What uv exported.
        version: The version of everything in the workspace.
        projects: The distributions of the workspace.
        time: When the commit was made; None leaves the time out.

    Raises:
        ValueError: The document has not exactly these projects, or a component of it is not identified.
    """
    components: list[dict[str, Any]] = document["components"]
    own = [each for each in components if any(pair["name"] == WORKSPACE for pair in each.get("properties", []))]
    if sorted(each["name"] for each in own) != sorted(projects):
        raise ValueError(f"has {sorted(each['name'] for each in own)} of the workspace; it must be {sorted(projects)}")
    for each in own:
        each["version"], each["purl"] = version, f"pkg:pypi/{each['name']}@{version}"
    metadata = document["metadata"]
    metadata["component"] |= {"name": ROOT_NAME, "version": version, "purl": f"pkg:generic/{ROOT_NAME}@{version}"}
    for each in [metadata["component"], *components]:
        if not each.get("version") or not each.get("purl"):
            raise ValueError(f"the component {each['name']} has no version or no package URL")
    for varying in ("timestamp", "serialNumber"):
        metadata.pop(varying, None)
        document.pop(varying, None)
    if time is not None:
        metadata["timestamp"] = time
    contents = json.dumps(document, sort_keys=True)
    document["serialNumber"] = uuid.uuid5(uuid.NAMESPACE_URL, contents).urn


def main(arguments: list[str] | None = None) -> int:
    """Run the command.

    Returns:
        The exit code: 1 when a component is not identified.
    """
    parser = argparse.ArgumentParser(description="Complete a CycloneDX document that uv exported, in place.")
    parser.add_argument("document", type=Path)
    path: Path = parser.parse_args(arguments).document
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    try:
        finish(document, read_version(ROOT), {project.name for project in read_projects(ROOT)}, commit_time(ROOT))
    except ValueError as error:
        print(f"{path.name}: {error}", file=sys.stderr)
        return 1
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
