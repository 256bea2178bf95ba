"""A build that is not the one whose files the index has is refused before it is uploaded."""

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from compare_with_index import main, release_of

WHEEL = "some_agents-1.0-py3-none-any.whl"
SDIST = "some_agents-1.0.tar.gz"


class Index:
    """An index with PyPI's JSON API, as far as it is asked here."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.status = 200
        self.asked: list[str] = []
        index = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                index.asked.append(self.path)
                urls = [
                    {"filename": name, "digests": {"sha256": hashlib.sha256(data).hexdigest()}}
                    for name, data in index.files.items()
                ]
                status = 404 if index.status == 200 and not urls else index.status
                body = json.dumps({"urls": urls}).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Nobody reads it."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture
def index() -> Iterator[Index]:
    made = Index()
    # Shutting down waits for one round of polling.
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    (tmp_path / WHEEL).write_bytes(b"wheel")
    (tmp_path / SDIST).write_bytes(b"sdist")
    return tmp_path


def test_an_index_that_does_not_know_the_release_takes_it(index: Index, dist: Path) -> None:
    assert main([str(dist), "--index", index.url]) == 0
    assert index.asked == ["/pypi/some-agents/1.0/json"]


def test_an_upload_that_broke_off_is_finished_with_the_same_files(index: Index, dist: Path) -> None:
    index.files = {WHEEL: b"wheel"}

    assert main([str(dist), "--index", index.url]) == 0


def test_another_build_is_refused(index: Index, dist: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index.files = {WHEEL: b"wheel", SDIST: b"another build"}

    assert main([str(dist), "--index", index.url]) == 1
    shown = capsys.readouterr().err
    assert shown.startswith(f"{SDIST}: the index has it with the SHA-256 ")
    assert WHEEL not in shown
    assert "publish the next version instead" in shown


def test_a_file_that_the_build_does_not_have_is_refused(
    index: Index, dist: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index.files = {"some_agents-1.0-cp311-cp311-linux_x86_64.whl": b"wheel"}

    assert main([str(dist), "--index", index.url]) == 1
    assert "the index has it, and this build does not" in capsys.readouterr().err


def test_an_index_that_answers_with_an_error_stops_the_upload(
    index: Index, dist: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    index.status = 503
    monkeypatch.setenv("RELEASE_INDEX", index.url)

    assert main([str(dist)]) == 1
    assert f"{index.url}: nothing could be compared: HTTP Error 503" in capsys.readouterr().err


@pytest.mark.parametrize("address", ["file:///etc", "pypi.org"])
def test_an_address_that_is_no_index_is_refused(dist: Path, address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(dist), "--index", address]) == 1
    assert "must have an address that begins with https://" in capsys.readouterr().err


def test_a_directory_without_distributions_or_with_something_else_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path)]) == 1
    assert "has no distributions" in capsys.readouterr().err

    (tmp_path / "notes.md").touch()
    assert main([str(tmp_path)]) == 1
    assert "notes.md is neither a wheel nor an sdist" in capsys.readouterr().err


@pytest.mark.parametrize("file", [WHEEL, SDIST, "Some.Agents-1.0.tar.gz"])
def test_a_file_names_its_release(file: str) -> None:
    assert release_of(file) == ("some-agents", "1.0")
