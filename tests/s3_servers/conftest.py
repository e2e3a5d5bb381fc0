"""Each server once for a file of tests; skipped with the reason where it is not built."""

from collections.abc import Iterator

import pytest

from infra.local.errors import UnavailableError
from tests.s3_servers.servers import AWS, NAMES, RealServer, running


@pytest.fixture(scope="module", params=NAMES)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    try:
        started = running(request.param, tmp_path_factory.mktemp(request.param))
        with started as server:
            yield server
    except UnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in AWS.items():
        monkeypatch.setenv(name, value)
