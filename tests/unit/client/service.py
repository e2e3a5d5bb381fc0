"""A Delegation Service with scripted answers, and a client whose clock advances only when it sleeps."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from delegation.client.client import AsyncDelegationClient, DelegationClient
from tests.kit.clocks import Clock
from tests.unit.polaris.scripted import Server

BASE = "https://edge.test/delegation-service/api"
ROOT = "/delegation-service/api"
SYNCHRONOUS = f"{ROOT}/v1/tasks/execute/synchronous"
TASKS = f"{ROOT}/v1/tasks"
CONFIG = f"{ROOT}/v1/config"
TASK_ID = "7f1c1d4e-8f5f-5b9a-9d0e-2f5a3f1b7a10"
SUPPORTED = {"idempotency-key-supported": "true", "idempotency-key-lifetime": "PT30M"}
SUCCEEDED = {
    "delegation_task_id": TASK_ID,
    "status": "COMPLETED_SUCCESS",
    "execution_result": {"files_deleted": 7, "bytes_deleted": 9_007_199_254_740_993},
}


class Tokens:
    """A token source of token-1, token-2, …; a refused token is not returned again."""

    def __init__(self) -> None:
        self.issued = 1
        self.scope = ""

    def token(self) -> str:
        return f"token-{self.issued}"

    def replace(self, refused: str) -> str:
        assert refused == self.token()
        self.issued += 1
        return self.token()


class Blocking:
    """An asyncio client whose coroutines and iterators run to their end in a loop of this thread."""

    def __init__(self, client: AsyncDelegationClient, loop: asyncio.Runner) -> None:
        self._client, self._loop = client, loop

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        def called(*args: Any, **options: Any) -> Any:
            result = method(*args, **options)
            if inspect.isasyncgen(result):
                return self._each(result)
            return self._loop.run(result) if inspect.iscoroutine(result) else Blocking(result, self._loop)

        return called

    def _each(self, values: AsyncIterator[Any]) -> Iterator[Any]:
        end = object()

        async def following() -> Any:
            return await anext(values, end)

        while (value := self._loop.run(following())) is not end:
            yield value


class Service(Server):
    """The service and a blocking client, or with a `loop` an asyncio client, which look alike."""

    def __init__(self, properties: dict[str, Any] | None = None, *, loop: asyncio.Runner | None = None) -> None:
        super().__init__()
        self.clock = Clock(datetime(2026, 11, 20, 12, tzinfo=UTC))
        self.keys = iter(f"key-{n}" for n in range(1, 100))
        self.tokens = Tokens()
        self.repeats: list[str] = []
        self.answer("GET", CONFIG, json_answer(200, {"properties": SUPPORTED if properties is None else properties}))
        transport = httpx.MockTransport(self._handle)
        shared: dict[str, Any] = {
            "clock": self.clock,
            "key": lambda: next(self.keys),
            "on_repeat": lambda repeat: self.repeats.append(str(repeat)),
        }
        self.client: Any
        if loop is None:
            http = httpx.Client(transport=transport)
            self.client = DelegationClient(BASE, self.tokens, http=http, sleep=self.sleep, **shared)
        else:
            waiting = httpx.AsyncClient(transport=transport)
            client = AsyncDelegationClient(BASE, self.tokens, http=waiting, sleep=self.pause, **shared)
            self.client = Blocking(client, loop)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.clock.advance(timedelta(seconds=seconds))

    async def pause(self, seconds: float) -> None:
        self.sleep(seconds)

    def sent_keys(self, path: str) -> list[str | None]:
        return [request.headers.get("Idempotency-Key") for request in self.asked("POST", path)]


def json_answer(status: int, body: Any, **headers: str) -> httpx.Response:
    return httpx.Response(status, json=body, headers={name.replace("_", "-"): value for name, value in headers.items()})


def refusal(http_status: int, error_code: str, *, retry_after: str | None = None, **fields: Any) -> httpx.Response:
    headers = {} if retry_after is None else {"Retry_After": retry_after}
    return json_answer(http_status, {"error_code": error_code, "message": "as scripted", **fields}, **headers)


def in_progress(retry_after: str | None = "2") -> httpx.Response:
    return refusal(409, "request_in_progress", retry_after=retry_after, delegation_task_id=TASK_ID)


def record(**changes: Any) -> dict[str, Any]:
    """Return a task as from `GET /v1/tasks/{taskId}`, with a member that this release does not know."""
    return {
        "task_id": TASK_ID,
        "version": 3,
        "revision": 9,
        "task_type": "TABLE_PURGE",
        "task_payload": (
            '{"common_payload": {"operation_type": "TABLE_PURGE", "realm_identifier": "POLARIS"},'
            ' "operation_parameters": {"table_identity": {"catalog_name": "lake", "namespace_levels": ["sales", "eu"],'
            ' "table_name": "orders"}}}'
        ),
        "status": "RUNNING",
        "received_timestamp": "2026-11-20T11:59:00.000000Z",
        "last_status_change_ts": "2026-11-20T11:59:30.000000Z",
        "attempt_count": 1,
        "engine": "spark",
        "files_planned": 400,
        "files_deleted": 100,
        "bytes_deleted": 1234,
        "added_by_a_later_release": {"x": 1},
    } | changes
