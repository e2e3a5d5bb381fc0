"""The API in this process over a task store, and a client of it: what the command calls, without a socket."""

import contextlib
import io
import itertools
from collections.abc import Callable
from datetime import datetime, timedelta

import httpx
from aws_lambda_powertools import Logger

from delegation.cli.tasks.direct import DirectTasks, TaskSource
from delegation.cli.tasks.source import ApiTasks
from delegation.client.client import DelegationClient
from delegation.edge.api.app import create_app
from delegation.edge.api.routes import Dependencies
from delegation.metrics import MetricLines
from delegation.tasks.life.policy import Policies, RetryPolicy
from delegation.tasks.stores.memory import MemoryTaskStore
from delegation.wiring.types import TYPES
from tests.kit.tasks.services import task_service
from tests.unit.cli.conftest import OPERATOR
from tests.unit.client.service import BASE, Tokens
from tests.unit.edge.conftest import FakeSubmissions, not_called
from tests.unit.edge.gateway import Context, request

_NUMBERS = itertools.count()


def api_client(store: MemoryTaskStore, clock: Callable[[], datetime]) -> DelegationClient:
    """Return a client of an API over this store; an operator calls."""
    tasks = task_service(store, Policies(RetryPolicy(), {}), clock=clock, types=TYPES)
    deps = Dependencies(
        submissions=FakeSubmissions(),
        tasks=tasks,
        realm="POLARIS",
        idempotency_lifetime=timedelta(minutes=30),
        clock=clock,
        receipt=lambda _task: None,
        checks={},
        mutations=not_called,
        types=TYPES,
    )
    logger = Logger(service=f"command-{next(_NUMBERS)}", level="CRITICAL")
    handle = create_app(deps, logger=logger, metrics=MetricLines("Delegation", "command"))

    def answer(sent: httpx.Request) -> httpx.Response:
        path = sent.url.path.removeprefix("/delegation-service/api")
        query = dict(sent.url.params) or None
        event = request(sent.method, path, client_id=OPERATOR, query=query, permissions="read manage")
        with contextlib.redirect_stdout(io.StringIO()):  # metrics
            served = handle(event, Context())
        headers = {name: values[0] for name, values in served["multiValueHeaders"].items()}
        return httpx.Response(served["statusCode"], headers=headers, content=served["body"].encode())

    return DelegationClient(BASE, Tokens(), http=httpx.Client(transport=httpx.MockTransport(answer)))


def sources(store: MemoryTaskStore, clock: Callable[[], datetime]) -> dict[str, TaskSource]:
    """Return both sources over one store."""
    return {"api": ApiTasks(api_client(store, clock)), "direct": DirectTasks(store, lambda: OPERATOR)}
