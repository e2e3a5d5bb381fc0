"""The contract of persistence backends: in memory, DynamoDB in moto (sequentially), DynamoDB Local (threads)."""

from collections.abc import Iterator

import pytest

from delegation.persistence.backends.base import Backend
from delegation.persistence.backends.memory import MemoryBackend
from delegation.testing.backends import CONCURRENT, SEQUENTIAL, Check
from tests.contract.persistence.backends import local_backend, moto_backend
from tests.contract.where import LOCAL, MOTO


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
