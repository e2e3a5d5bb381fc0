"""moto in the test's process serves threads."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.contract import task_tables


@pytest.fixture
def switching() -> Iterator[None]:
    """Change threads as often as the interpreter can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("switching")
def test_transactions_of_threads_are_all_kept() -> None:
    with task_tables.moto() as client:
        client.create_table(
            TableName="numbers",
            AttributeDefinitions=[{"AttributeName": "n", "AttributeType": "N"}],
            KeySchema=[{"AttributeName": "n", "KeyType": "HASH"}],
            BillingMode="PAY_PER_REQUEST",
        )

        def write(number: int) -> None:
            item = {"n": {"N": str(number)}}
            client.transact_write_items(TransactItems=[{"Put": {"TableName": "numbers", "Item": item}}])

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(write, range(100)))
        kept = client.scan(TableName="numbers", Select="COUNT")["Count"]
    assert kept == 100
