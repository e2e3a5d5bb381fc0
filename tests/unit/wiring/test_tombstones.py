"""The API works on tombstones where the deployment names their table, and on none elsewhere."""

from typing import Any, cast

import pytest

from delegation.gateway.drop.service import Tombstones
from delegation.wiring import api, drops, table_access


@pytest.mark.parametrize("table", [None, "tombstones"])
def test_tombstones_are_those_of_the_named_table(monkeypatch: pytest.MonkeyPatch, table: str | None) -> None:
    calls: list[Any] = []

    class DynamoDb:
        def get_item(self, **call: Any) -> dict[str, Any]:
            calls.append(call)
            return {}

    monkeypatch.delenv("DELEGATION_TOMBSTONES_TABLE", raising=False)
    if table is not None:
        monkeypatch.setenv("DELEGATION_TOMBSTONES_TABLE", table)
    monkeypatch.setattr(drops, "aws", lambda *_: DynamoDb())
    monkeypatch.setattr(table_access, "synchronous_polaris", lambda: cast("Any", None))
    found = api.tombstones(cast("Any", None))
    assert isinstance(found, Tombstones) is (table is not None)
    if found is not None:
        assert found.store.get("0123456789abcdef-1") is None
        assert [call["TableName"] for call in calls] == [table]
