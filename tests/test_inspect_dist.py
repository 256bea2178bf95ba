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


def git(root: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(root), *arguments], check=True, capture_output=True, timeout=60)


def rewrite(wheel: Path, change: Callable[[str, bytes], bytes | None]) -> None:
    """Write a wheel again with what `change` makes of each member; None leaves it out."""
    with zipfile.ZipFile(wheel) as source:
        members = {name: source.read(name) for name in source.namelist()}
    with zipfile.ZipFile(wheel, "w") as target:
        for name, data in members.items():
            changed = change(name, data)
            if changed is not None:
                target.writestr(name, changed)


def add(sdist: Path, *entries: tuple[tarfile.TarInfo, bytes], without: str = "") -> None:
    """Write an sdist again, with more entries at its end and without one file of it."""
    with tarfile.open(sdist) as source:
        kept = [(each, file.read()) for each in source.getmembers() if (file := source.extractfile(each)) is not None]
    with tarfile.open(sdist, "w:gz") as target:
        for entry, data in [*kept, *entries]:
            if not without or not entry.name.endswith(f"/{without}"):
                entry.size = len(data)
                target.addfile(entry, io.BytesIO(data))


def entry(name: str, kind: bytes = tarfile.REGTYPE, to: str = "") -> tuple[tarfile.TarInfo, bytes]:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, to
    return made, b""


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
def sdist(dist: Path) -> Path:
    return dist / f"{ADAPTER}.tar.gz"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the distributions are built from, to plant files in."""
    root = tmp_path_factory.mktemp("checkout")
    for file in ("VERSION", ".gitignore"):
        shutil.copy(ROOT / file, root / file)
    shutil.copytree(ROOT / "packages", root / "packages", ignore=shutil.ignore_patterns("__pycache__"))
    git(root, "init")
    git(root, "add", ".")
    return root


@pytest.fixture
def wheel(dist: Path) -> Path:
    return dist / f"{ADAPTER}-py3-none-any.whl"


def test_a_build_without_workspace_sources_is_a_release_and_names_the_order_of_publishing(
    built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "output"

    assert main([str(built), "--github-output", str(output)]) == 0
    assert output.read_text() == capsys.readouterr().out
    projects, prerelease = output.read_text().splitlines()
    assert projects.startswith('projects=["dex-agents-embedded", "dex-agents", "dex-agents-claude-agent-sdk"')
    assert prerelease == "prerelease=false"


def test_two_builds_give_the_same_bytes(built: Path, tmp_path: Path) -> None:
    again = build(tmp_path / "again")

    assert main([str(built), "--same-as", str(again)]) == 0


def test_a_build_that_is_not_the_same_bytes_is_refused(
    built: Path, dist: Path, wheel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rewrite(wheel, lambda _, data: data)

    assert main([str(built), "--same-as", str(dist)]) == 1
    assert capsys.readouterr().err.endswith(f"{wheel.name}: two builds differ\n")


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
        f"{wheel.name}: holds dex_agents_pydantic_ai/left_over.py, which is no file of its project",
        f"{wheel.name}: holds tests/test_all.py, which is no file of its project",
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


def test_a_wheel_that_is_not_what_its_project_declares_is_refused(dist: Path, wheel: Path) -> None:
    change_metadata(wheel, "Requires-Python: >=3.11", "Requires-Python: >=3.9")
    change_metadata(wheel, "License-Expression: Apache-2.0", "License-Expression: MIT")
    change_metadata(wheel, "Requires-Dist: dex-agents", "Provides-Extra: fast\nRequires-Dist: dex-agents")

    assert problems(dist) == [
        f"{wheel.name}: has Requires-Python >=3.9; it must be >=3.11",
        f"{wheel.name}: has License-Expression MIT; it must be Apache-2.0",
        f"{wheel.name}: has Provides-Extra ['fast']; it must be []",
    ]


@pytest.mark.parametrize(
    ("member", "old", "new", "problem"),
    [
        ("WHEEL", "Tag: py3-none-any", "Tag: py3-none-linux_x86_64", "has Tag ['py3-none-linux_x86_64']; it must be"),
        ("WHEEL", "Purelib: true", "Purelib: false", "has Root-Is-Purelib false; it must be true"),
        ("entry_points.txt", "session_flow", "other", "has entry points {'dex_agents.demos': {'pydantic-ai': 'dex_ag"),
        ("LICENSE", "Apache", "Apace", "holds dex_agents_pydantic_ai-"),
        ("_runner.py", "def ", "def  ", "holds dex_agents_pydantic_ai/_runner.py with other bytes than packages/dex-"),
    ],
)
def test_a_changed_file_of_a_wheel_is_refused(
    dist: Path, wheel: Path, member: str, old: str, new: str, problem: str
) -> None:
    def change(name: str, data: bytes) -> bytes:
        return data.replace(old.encode(), new.encode()) if name.endswith(f"/{member}") else data

    rewrite(wheel, change)

    (found,) = problems(dist)
    assert found.startswith(f"{wheel.name}: {problem}")


def test_a_file_that_wheels_do_not_have_beside_their_metadata_is_refused(dist: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel, "a") as target:
        target.writestr(f"{ADAPTER}.dist-info/direct_url.json", "{}")
    assert problems(dist) == [
        f"{wheel.name}: holds {ADAPTER}.dist-info/direct_url.json, which is no file of its project"
    ]

    rewrite(wheel, lambda name, data: None if name.endswith(("/direct_url.json", "/entry_points.txt")) else data)
    assert f"{wheel.name}: lacks {ADAPTER}.dist-info/entry_points.txt" in problems(dist)


@pytest.mark.parametrize("suffix", ["-py3-none-any.whl", ".tar.gz"])
def test_a_file_whose_name_is_not_that_of_its_metadata_is_refused(dist: Path, suffix: str) -> None:
    if suffix == ".tar.gz":
        # The top directory of an sdist is its name.
        with tarfile.open(dist / f"{ADAPTER}{suffix}") as source:
            source.extractall(dist.parent, filter="data")
        (dist / f"{ADAPTER}{suffix}").unlink()
        with tarfile.open(dist / f"dex_agents-99.0{suffix}", "w:gz") as target:
            target.add(dist.parent / ADAPTER, "dex_agents-99.0")
    else:
        (dist / f"{ADAPTER}{suffix}").rename(dist / f"dex_agents-99.0{suffix}")

    assert f"dex_agents-99.0{suffix}: must be named {ADAPTER}{suffix}, as its metadata says" in problems(dist)


@pytest.mark.parametrize("tag", ["py2-none-any", "cp311-cp311-linux_x86_64"])
def test_a_wheel_for_something_else_is_refused(dist: Path, wheel: Path, tag: str) -> None:
    renamed = wheel.rename(dist / f"{ADAPTER}-{tag}.whl")

    assert problems(dist) == [f"{renamed.name}: must be named {wheel.name}, as its metadata says"]


@pytest.mark.parametrize(
    "stray", ["LICENSE.secret", "pyproject.toml.orig", "src/dex_agents_pydantic_ai/stray.py", "setup.py", ".env"]
)
def test_a_foreign_file_of_an_sdist_is_refused(dist: Path, sdist: Path, stray: str) -> None:
    add(sdist, entry(f"{ADAPTER}/{stray}"))

    assert problems(dist) == [f"{sdist.name}: holds {stray}, which is no file of its project"]


@pytest.mark.parametrize("missing", ["pyproject.toml", "README.md", "tests/test_runner.py"])
def test_an_sdist_that_lacks_a_file_is_refused(dist: Path, sdist: Path, missing: str) -> None:
    add(sdist, without=missing)

    assert problems(dist) == [f"{sdist.name}: lacks {missing}"]


@pytest.mark.parametrize(
    ("planted", "problem"),
    [
        (entry(f"{ADAPTER}/link", tarfile.SYMTYPE, "/etc/passwd"), "link, which is no plain file"),
        (entry(f"{ADAPTER}/link", tarfile.LNKTYPE, f"{ADAPTER}/LICENSE"), "link, which is no plain file"),
        (entry(f"{ADAPTER}/pipe", tarfile.FIFOTYPE), "pipe, which is no plain file"),
        (entry(f"{ADAPTER}/../up.py"), "up.py, whose path leaves the archive"),
        (entry("/tmp/absolute.py"), "/tmp/absolute.py, whose path leaves the archive"),
        (entry("beside.py"), "holds beside.py, which is outside of"),
        (entry(f"{ADAPTER}/LICENSE"), f"holds {ADAPTER}/LICENSE 2 times"),
    ],
)
def test_an_entry_that_unpacks_elsewhere_is_refused(
    dist: Path, sdist: Path, planted: tuple[tarfile.TarInfo, bytes], problem: str
) -> None:
    add(sdist, planted)

    assert problem in problems(dist)[0]


def test_a_link_and_a_way_out_of_a_wheel_are_refused(dist: Path, wheel: Path) -> None:
    link = zipfile.ZipInfo("dex_agents_pydantic_ai/link.py")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(wheel, "a") as target:
        target.writestr(link, "/etc/passwd")
        target.writestr("../up.py", "")

    assert problems(dist)[:2] == [
        f"{wheel.name}: holds dex_agents_pydantic_ai/link.py, which is no plain file",
        f"{wheel.name}: holds ../up.py, whose path leaves the archive",
    ]


def test_a_file_that_is_no_archive_is_refused(dist: Path, sdist: Path) -> None:
    sdist.write_bytes(b"no archive")

    assert problems(dist)[0] == f"{sdist.name}: not a gzip file; build it again"


@pytest.mark.parametrize("name", ["secret.env", "tests/test_a.py", "left_over.py"])
def test_a_file_that_git_does_not_track_is_refused(dist: Path, wheel: Path, checkout: Path, name: str) -> None:
    source = checkout / "packages" / "dex-agents-pydantic-ai" / "src" / "dex_agents_pydantic_ai" / name
    source.parent.mkdir(exist_ok=True)
    source.touch()
    with zipfile.ZipFile(wheel, "a") as target:
        target.writestr(f"dex_agents_pydantic_ai/{name}", "")

    found = problems(dist, checkout)

    source.unlink()
    assert found == [f"{wheel.name}: holds dex_agents_pydantic_ai/{name}, which is no file of its project"]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("dex_agents_pydantic_ai/secret.env", "is no module"),
        ("dex_agents_pydantic_ai/tests/test_a.py", "is a test; move it to tests/"),
        ("other/stray.py", "is outside of the import package dex_agents_pydantic_ai"),
    ],
)
def test_a_tracked_file_that_does_not_belong_in_the_sources_is_refused(
    dist: Path, checkout: Path, name: str, problem: str
) -> None:
    source = checkout / "packages" / "dex-agents-pydantic-ai" / "src" / name
    source.parent.mkdir(exist_ok=True)
    source.touch()
    git(checkout, "add", str(source))

    found = problems(dist, checkout)

    git(checkout, "rm", "--force", str(source))
    assert found[0] == f"dex-agents-pydantic-ai: src/{name} {problem}"


def test_without_git_the_files_on_the_disk_stand_in_and_a_line_says_so(
    dist: Path, checkout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = shutil.copytree(checkout, tmp_path / "plain", ignore=shutil.ignore_patterns(".git"))

    assert problems(dist, plain) == []
    assert "is no git work tree: files that do not belong to the repository are not noticed" in capsys.readouterr().err
