"""Ctrl-C in `delegation purge` while the object store does not answer."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.kit.lakes.lake import Lake, busy_table
from tests.paths import ROOT

COMMAND = "import sys; from delegation.cli.main import build; build(())(sys.argv[1:])"


class SilentStore(ThreadingHTTPServer):
    """An S3 endpoint that serves a lake's objects and answers no delete; it is `asked` once a delete arrives."""

    daemon_threads = True

    def __init__(self, lake: Lake, *, silent: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lake, self.silent = lake, silent
        self.asked, self.closing = threading.Event(), threading.Event()


class _Handler(BaseHTTPRequestHandler):
    server: SilentStore
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if "list-type=" in query:
            self._refuse_listing()
            return
        if self.server.silent in path:
            self._hang()
            return
        bucket, _, key = path.lstrip("/").partition("/")
        data = self.server.lake.objects.get((bucket, key))
        self.send_response(404 if data is None else 200)
        self.send_header("Content-Length", str(len(data or b"")))
        self.end_headers()
        self.wfile.write(data or b"")

    def _refuse_listing(self) -> None:
        self.send_response(403)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_DELETE(self) -> None:
        """Answer the probe of an absent key."""
        self.send_response(204)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        self._hang()

    def _hang(self) -> None:
        self.server.asked.set()
        self.server.closing.wait(60)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(params=["POST only", "manifests too"])
def store(request: pytest.FixtureRequest) -> Iterator[SilentStore]:
    lake = Lake()
    busy_table(lake, "t")
    server = SilentStore(lake, silent="-m0.avro" if request.param == "manifests too" else "nothing")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.closing.set()
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("flags", [(), pytest.param(("--json",), marks=pytest.mark.long)])
def test_ctrl_c_ends_within_two_seconds_and_says_how_to_resume(store, tmp_path, flags):
    endpoint = f"http://127.0.0.1:{store.server_address[1]}"
    arguments = [store.lake.pointers["t"], "--yes", "--s3-endpoint", endpoint, "--plan", str(tmp_path / "plan")]
    env = {**os.environ, "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_DEFAULT_REGION": "us-east-1"}
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, "purge", *arguments, *flags],
        cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert store.asked.wait(60)
        pressed = time.monotonic()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=8)
        took = time.monotonic() - pressed
    finally:
        process.kill()
    assert (process.returncode, took < 2.0) == (130, True), (took, out, err)
    assert "delegation purge" in err
    assert str(tmp_path / "plan") in err
    if flags:
        report = json.loads(out)
        assert (report["status"], report["error_code"], report["files_deleted"]) == ("INTERRUPTED", "INTERRUPTED", 0)
