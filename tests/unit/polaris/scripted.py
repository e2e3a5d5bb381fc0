"""A recorded sleep, and a Polaris with scripted answers."""

import json
from collections.abc import Callable
from typing import Any

import httpx

from delegation.polaris.transport import Transport

Answer = httpx.Response | Exception | Callable[[], httpx.Response]


class Server:
    """Answers (method, path) from a queue whose last answer repeats, and records every request."""

    def __init__(self) -> None:
        self.requests: list[httpx.Request] = []
        self.slept: list[float] = []
        self._answers: dict[tuple[str, str], list[Answer]] = {}
        self.transport = Transport(httpx.Client(transport=httpx.MockTransport(self._handle)), sleep=self.slept.append)

    def answer(self, method: str, path: str, *answers: Answer) -> None:
        self._answers[method, path] = list(answers)

    def asked(self, method: str, path: str) -> list[httpx.Request]:
        return [request for request in self.requests if (request.method, _path(request)) == (method, path)]

    def _handle(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        queue = self._answers.get((request.method, _path(request)))
        if queue is None:
            return httpx.Response(418, json={"error": {"type": "Unscripted", "message": _path(request)}})
        answer = queue.pop(0) if len(queue) > 1 else queue[0]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, httpx.Response):
            return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)
        return answer()


def _path(request: httpx.Request) -> str:
    return request.url.raw_path.decode().partition("?")[0]


def error(
    status: int, type_: str, message: str = "as scripted", headers: dict[str, str] | None = None
) -> httpx.Response:
    return httpx.Response(status, json={"error": {"type": type_, "message": message, "code": status}}, headers=headers)


def raw_json(text: str) -> httpx.Response:
    return httpx.Response(200, content=text.encode(), headers={"Content-Type": "application/json"})


def table_answer(**changes: Any) -> httpx.Response:
    body: dict[str, Any] = {
        "metadata-location": "s3://lake/ns/orders/metadata/00002.metadata.json",
        "metadata": {
            "format-version": 2,
            "table-uuid": "9C12D441-03FE-4693-9A96-A0705DDF69C1",
            "location": "s3://lake/ns/orders",
            "properties": {"gc.enabled": "true"},
            "snapshots": [{"snapshot-id": 9_223_372_036_854_775_807}],
        },
        "config": {"s3.endpoint": "http://127.0.0.1:90", "s3.path-style-access": "true", "client.region": "eu-west-1"},
        "storage-credentials": [],
    }
    return raw_json(json.dumps(body | changes))
