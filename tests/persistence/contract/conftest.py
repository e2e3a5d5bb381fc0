"""A backend by its name: in memory, DynamoDB in moto, DynamoDB Local."""

from collections.abc import Iterator

import pytest

from polaris_persistence.backends.base import Backend
from polaris_persistence.backends.memory import MemoryBackend
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
