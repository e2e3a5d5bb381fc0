"""Names whose keys pass what the table store takes are refused before anything is written."""

from collections.abc import Callable

import pytest

from polaris_persistence.backends.base import Backend, ObjectKey, Reference, ReferenceKey, StoredObject
from polaris_persistence.catalogs.process import PersistenceProcess
from polaris_persistence.errors import PersistenceError
from tests.kit.errors import coded
from tests.persistence.builders import CountingBackend, Entity, store_on

LONG = "ü" * 341
"""2,046 bytes percent-encoded: too long with anything besides."""


@pytest.mark.parametrize(
    "write",
    [
        lambda backend: store_on(backend, realm=LONG).write([Entity(name="a")]),
        lambda backend: store_on(backend, catalog=LONG).create_reference("main"),
        lambda backend: store_on(backend).create_reference(LONG),
        lambda backend: backend.put_many(
            [StoredObject(ObjectKey("r", name, "t", 1), b"", 1) for name in ("a", "b", LONG)]
        ),
        lambda backend: backend.insert(StoredObject(ObjectKey("r", LONG, "t", 1), b"", 1, "t")),
        lambda backend: backend.create_reference(Reference(ReferenceKey("r", "c", LONG), (), 1)),
    ],
    ids=["realm", "catalog", "reference", "batch", "insert", "pointer"],
)
def test_a_name_whose_key_is_too_long_is_refused_before_anything_is_written(write: Callable[[Backend], object]) -> None:
    backend = CountingBackend()
    with pytest.raises(PersistenceError, check=coded("NAME_TOO_LONG"), match="2048"):
        write(backend)
    assert list(backend._objects) == []
    assert list(backend.references()) == []


def test_a_realm_or_catalog_with_a_long_name_is_not_half_created() -> None:
    backend = CountingBackend()
    realms = PersistenceProcess(backend).realms()
    realms.create("acme", {})
    # Spaces, not names, are in the keys: a long name only needs to fit the index.
    realms.create(LONG * 2, {})
    realms.create_catalog(LONG * 2, LONG * 2, {})
    backend.calls.clear()
    with pytest.raises(ValueError, match="8192"):
        realms.create("x" * 9_000, {})
    with pytest.raises(ValueError, match="8192"):
        realms.create_catalog("acme", "x" * 9_000, {})
    assert not {"put_many", "create_reference", "replace_reference", "insert", "update"} & set(backend.calls)
