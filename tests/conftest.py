"""Servers for tests of several folders; each starts once per test process, when a test needs it."""

import functools
import gc
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.loaders import JSONFileLoader, Loader
from hypothesis import settings

from infra.local.aws.dynamodb import DynamoDbLocal
from infra.local.aws.moto_app import MotoProcess
from infra.local.errors import UnavailableError
from infra.package import description
from tests import scheduling
from tests.effort import examples

_read_description = JSONFileLoader.load_file


@functools.cache
def _description(path: str) -> Any:
    return _read_description(JSONFileLoader(), path)


_list_services = Loader.list_available_services
_services: dict[tuple[str, ...], Any] = {}


def _known_services(loader: Loader, type_name: str) -> Any:
    place = (*loader.search_paths, type_name)
    if place not in _services:
        _services[place] = _list_services(loader, type_name)
    return _services[place]


# Each of the thousand boto3 sessions of the tests would look for AWS' services, and parse their descriptions, again.
JSONFileLoader.load_file = lambda _self, file_path: _description(file_path)  # type: ignore[method-assign]
Loader.list_available_services = _known_services  # type: ignore[method-assign]

# No test asserts on time, and a busy machine must not fail an example.
settings.register_profile("unhurried", deadline=None, max_examples=examples(100))
settings.load_profile("unhurried")


def pytest_configure() -> None:
    """Build the API's description, which no commit contains, and collect tests without collecting garbage.

    What is imported and collected stays, and is walked for garbage a hundred times otherwise: a quarter of the time.
    """
    description.ensure()
    gc.disable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest tests first."""
    items.sort(key=lambda item: scheduling.rank(item.nodeid))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave what was collected out of garbage collection, which would walk ten thousand tests again and again."""
    session.config.stash[scheduling.IMPORTED_BY_COLLECTION] = frozenset(sys.modules)
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Collect what a file leaves: an unclosed connection fails the file that opened it, not one that runs later.

    What is left then (modules, AWS' descriptions of its services) belongs to the process, and is not walked again after
    each of a thousand files. A file that leaves logging disabled fails too: tests that run later in this process would
    read no message.
    """
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()
        disabled = logging.root.manager.disable
        logging.disable(logging.NOTSET)
        assert disabled == logging.NOTSET, f"{item.path} left logging disabled"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Under `--dist loadfile`: files that share a server run in one process."""
    return scheduling.scheduler(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.fixture(scope="session")
def dynamodb_local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DynamoDbLocal]:
    """DynamoDB Local, endpoint `.url`; mark the test `dynamodb_local`. Tables are shared: give yours a random name."""
    server = DynamoDbLocal(log=tmp_path_factory.mktemp("dynamodb-local") / "server.log")
    try:
        server.start()
    except UnavailableError as exc:
        pytest.skip(str(exc))
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def moto_dynamodb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MotoProcess]:
    """moto's DynamoDB, serialised, endpoint `.url`. Tables are shared: give yours a random name."""
    server = MotoProcess(log=tmp_path_factory.mktemp("moto-dynamodb") / "server.log").start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def moto_client() -> Iterator[Any]:
    """Provide a client of DynamoDB in moto inside this process, for sequential use."""
    from tests.contract.task_tables import moto

    with moto() as client:
        yield client
