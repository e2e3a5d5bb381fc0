"""Manifest lists that were read for another table: as many as fit are remembered."""

import pytest

from delegation.iceberg.reach import ListsRead


def test_lists_are_remembered_while_their_manifests_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ListsRead, "_MOST", 3)
    lists = ListsRead()
    manifests: list[object] = [object(), object()]
    lists.note("first", manifests[:1])  # type: ignore[arg-type]
    lists.note("too long", manifests)  # type: ignore[arg-type]
    lists.note("as long as what is left", manifests[1:])  # type: ignore[arg-type]
    lists.note("one too many", [])
    assert lists.of("first") == manifests[:1]
    assert lists.of("too long") is None
    assert lists.of("as long as what is left") == manifests[1:]
    assert lists.of("one too many") is None
