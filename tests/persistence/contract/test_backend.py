"""The contract of persistence backends: in memory, DynamoDB in moto (sequentially), DynamoDB Local (threads)."""

from collections.abc import Iterator

import pytest

from polaris_persistence.backends.base import Backend
from polaris_persistence.backends.memory import MemoryBackend
from polaris_persistence.testing.backends import CONCURRENT, SEQUENTIAL, Check
from tests.contract.where import LOCAL, MOTO
from tests.persistence.contract.backends import local_backend, moto_backend


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    match request.param:
        case "memory":
            yield MemoryBackend()
        case "moto":
            with moto_backend() as in_moto:
                yield in_moto
        case "local":
            with local_backend(request.getfixturevalue("dynamodb_local").url) as in_dynamodb:
                yield in_dynamodb


@pytest.mark.parametrize("backend", ["memory", MOTO, LOCAL], indirect=True)
@pytest.mark.parametrize("check", SEQUENTIAL, ids=lambda check: check.__name__)
def test_contract(backend: Backend, check: Check) -> None:
    check(backend)


# moto loses acknowledged writes under threads, so these run without it.
@pytest.mark.parametrize("backend", ["memory", LOCAL], indirect=True)
@pytest.mark.parametrize("check", CONCURRENT, ids=lambda check: check.__name__)
def test_contract_under_threads(backend: Backend, check: Check) -> None:
    check(backend)
