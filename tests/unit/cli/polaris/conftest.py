"""The stand-in for Polaris, which answers as Apache Polaris 1.7, behind a transport that notes and refuses changes."""

from collections.abc import Iterator
from typing import Any, cast

import httpx
import pytest
from pydantic import SecretStr

from delegation.cli.connection import Connection
from infra.local.catalog.server import LocalCatalog
from infra.local.s3.requests import VendedKeys

URL = "http://polaris.test/api/catalog"


class ManagedPolaris(httpx.WSGITransport):
    """One catalog, `lake`, which is of a `kind`.

    `changes` are the requests that change its management, `fails_at` is the number of one that is refused, and
    `secrets` are those that were given.
    """

    def __init__(self, catalog: LocalCatalog) -> None:
        super().__init__(app=_with_raw_path(catalog))
        self.changes: list[str] = []
        self.secrets: list[str] = []
        self.fails_at: int | None = None
        self.kind: dict[str, Any] = {}

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path.partition("/api/management/v1/")[2]
        if path and request.method != "GET":
            self.changes.append(f"{request.method} {path}")
            if len(self.changes) == self.fails_at:
                refused = {"type": "ForbiddenException", "message": "as scripted", "code": 403}
                return httpx.Response(403, json={"error": refused})
        answer = super().handle_request(request)
        if path == "catalogs/lake" and self.kind:
            return httpx.Response(200, json={**_read(answer), **self.kind})
        if request.method == "POST" and path.startswith("principals"):
            self.secrets.append(_read(answer)["credentials"]["clientSecret"])
        return answer


def _read(answer: httpx.Response) -> Any:
    answer.read()
    return answer.json()


def _with_raw_path(app):
    def with_raw_path(environ, start_response):
        return app({**environ, "REQUEST_URI": environ["PATH_INFO"]}, start_response)

    return with_raw_path


@pytest.fixture
def polaris() -> Iterator[ManagedPolaris]:
    catalog = LocalCatalog(
        name="lake", location="s3://lake", s3=cast("Any", None), sts=cast("Any", None), keys=VendedKeys(),
        s3_endpoint="http://127.0.0.1:1", region="us-east-1", principals=[], root=SecretStr("hunter2"),
    )  # fmt: skip
    yield ManagedPolaris(catalog)
    catalog.stop()


@pytest.fixture
def stand_in(polaris, monkeypatch) -> Iterator[httpx.Client]:
    """A client of the stand-in, and the settings of its administrator."""
    with httpx.Client(transport=polaris) as http:
        monkeypatch.setattr(Connection, "http", lambda _self: http)
        monkeypatch.setenv("DELEGATION_POLARIS_URL", URL)
        monkeypatch.setenv("DELEGATION_POLARIS_ADMIN_CREDENTIAL", "root:hunter2")
        monkeypatch.setenv("DELEGATION_REALM", "POLARIS")
        yield http
