"""The examples of README.md's "From your code", and a small service that answers them; only the standard library."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

README = Path(__file__).resolve().parents[3] / "README.md"
API = "/delegation-service/api/v1"
TASK_ID = "7f1c1d4e-8f5f-5b9a-9d0e-2f5a3f1b7a10"


def examples() -> list[str]:
    """Return the Python examples: the first is blocking, the second for asyncio."""
    text = README.read_text(encoding="utf-8")
    chapter = text[text.index("## From your code") :]
    chapter = chapter[: chapter.index("\n## ", 1)]
    return re.findall(r"^```python\n(.*?)^```$", chapter, re.MULTILINE | re.DOTALL)


class Handler(BaseHTTPRequestHandler):
    """A token endpoint, and a service whose tasks have ended at the second read."""

    protocol_version = "HTTP/1.1"
    server: "Stub"

    def do_GET(self) -> None:
        if self.path == f"{API}/config":
            properties = {"idempotency-key-supported": "true", "idempotency-key-lifetime": "PT30M"}
            self.answer(200, {"properties": properties})
            return
        with self.server.lock:
            self.server.reads += 1
            ended = self.server.reads > 1
        status = {"status": "SUCCESS" if ended else "RUNNING", "version": 3 + ended, "files_deleted": 42 * ended}
        self.answer(200, {"task_id": TASK_ID, "task_type": "TABLE_PURGE", "bytes_deleted": 4096, **status})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if self.path == "/oauth/tokens":
            self.answer(200, {"access_token": "token", "expires_in": 3600})
            return
        key = self.headers["Idempotency-Key"]
        with self.server.lock:
            repeated = (key, body) in self.server.sent
            self.server.sent.append((key, body))
        if not repeated:  # every first request is answered with a failure that may pass
            self.answer(503, {"error_code": "STORE_UNAVAILABLE", "message": "busy"})
        elif self.path.endswith("/synchronous"):
            result = {"files_deleted": 42, "bytes_deleted": 4096}
            done = {"delegation_task_id": TASK_ID, "status": "COMPLETED_SUCCESS", "execution_result": result}
            self.answer(200, done)
        else:
            url = f"{API}/tasks/{TASK_ID}"
            self.answer(202, {"delegation_task_id": TASK_ID, "status": "QUEUED", "status_query_url": url})

    def answer(self, status: int, body: Any) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        if status == 503:
            self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the standard library
        del format, args


class Stub(ThreadingHTTPServer):
    """The service; `sent` has the key and the body of each submission."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()
        self.reads = 0
        self.sent: list[tuple[str | None, bytes]] = []

    @property
    def variables(self) -> dict[str, str]:
        """The environment with which a client connects."""
        address = f"http://127.0.0.1:{self.server_address[1]}"
        return {
            "DELEGATION_EDGE_URL": f"{address}/delegation-service/api",
            "DELEGATION_TOKEN_URL": f"{address}/oauth/tokens",
            "DELEGATION_CLIENT_ID": "polaris",
            "DELEGATION_CLIENT_SECRET": "secret",
            "DELEGATION_REALM": "POLARIS",
        }


@contextmanager
def serving() -> Iterator[Stub]:
    """Serve until the end of the block."""
    with Stub() as stub:
        thread = threading.Thread(target=stub.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield stub
        finally:
            stub.shutdown()
            thread.join()
