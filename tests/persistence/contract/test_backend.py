"""The contract of persistence backends: in memory, DynamoDB in moto (sequentially), DynamoDB Local (threads)."""

import pytest

from polaris_persistence.backends.base import Backend
from polaris_persistence.testing.backends import CONCURRENT, SEQUENTIAL, Check
from tests.contract.where import LOCAL, MOTO


@pytest.mark.parametrize("backend", ["memory", MOTO, LOCAL], indirect=True)
@pytest.mark.parametrize("check", SEQUENTIAL, ids=lambda check: check.__name__)
def test_contract(backend: Backend, check: Check) -> None:
    check(backend)


# moto loses acknowledged writes under threads, so these run without it.
@pytest.mark.parametrize("backend", ["memory", LOCAL], indirect=True)
@pytest.mark.parametrize("check", CONCURRENT, ids=lambda check: check.__name__)
def test_contract_under_threads(backend: Backend, check: Check) -> None:
    check(backend)
