"""A listing that does not advance, or is none, is at once an error that names the store."""

from collections.abc import Iterator
from itertools import islice

import pytest

from delegation.storage.base import ObjectNotFound, ObjectStoreError
from delegation.storage.credentials import S3Settings
from delegation.storage.listing.model import ListableStore
from delegation.storage.locations import ObjectLocation
from delegation.storage.s3 import S3ObjectStore
from delegation.storage.s3_plans import S3PlanStore
from delegation.storage.sessions import s3_client
from tests.faults.hostile.runs import AWS
from tests.faults.hostile.server import HostileStore
from tests.faults.hostile.ways import LISTINGS

KEYS = ["t/a", "t/b", "t/c", "t/d/1", "t/d/2", "t/e"]
# These say so by the status, or have only odd names.
REFUSED = {"lists: 405", "lists: a prefix that has no end"}
PAGES = sorted(one for one in LISTINGS.keys() - REFUSED if "prefix" not in one or "keys" in one)
FOLDERS = sorted(LISTINGS.keys() - REFUSED - {"lists: the last key again", "lists: the first page again"})


@pytest.fixture
def hostile(monkeypatch: pytest.MonkeyPatch) -> Iterator[HostileStore]:
    for name, value in AWS.items():
        monkeypatch.setenv(name, value)
    with HostileStore({("lake", key): b"1" for key in KEYS}) as store:
        yield store


def settings(hostile: HostileStore) -> S3Settings:
    return S3Settings(endpoint=hostile.url, region="us-east-1", path_style=True)


def walk(store: ListableStore) -> list[str]:
    found: list[str] = []
    for _ in range(10):
        page = store.page("lake", "t/", after=found[-1] if found else "")
        found += [one.key for one in page.objects]
        if page.is_last:
            return found
    raise AssertionError("it did not end")


def test_a_sound_store_is_listed_page_by_page(hostile: HostileStore) -> None:
    hostile.page = 2
    store = S3ObjectStore(settings=settings(hostile))
    assert walk(store) == KEYS
    hostile.page = 1_000
    assert store.folder("lake", "t/").folders == ("t/d/",)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_that_does_not_advance_names_the_store(hostile: HostileStore, name: str) -> None:
    hostile.set(LISTINGS[name])
    with pytest.raises(ObjectStoreError, match=hostile.url) as raised:
        walk(S3ObjectStore(settings=settings(hostile)))
    assert (raised.value.code, raised.value.retryable) == ("STORE_LISTING_INVALID", False)
    assert hostile.wrong <= 2


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_has_only_longer_prefixes(hostile: HostileStore, name: str) -> None:
    hostile.set(LISTINGS[name])
    with pytest.raises(ObjectStoreError, match=hostile.url) as raised:
        S3ObjectStore(settings=settings(hostile)).folder("lake", "t/")
    assert raised.value.code == "STORE_LISTING_INVALID"
    assert hostile.wrong == 1


@pytest.mark.parametrize("name", PAGES)
def test_the_services_own_objects_are_not_listed_forever(
    hostile: HostileStore, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.faults.hostile.server.BUCKET", "plans")
    hostile.objects.update({("plans", key): b"1" for key in KEYS})
    hostile.set(LISTINGS[name])
    plans = S3PlanStore(s3_client(settings(hostile)), "plans")
    with pytest.raises(ObjectStoreError):
        list(islice(plans.keys("t/"), 20))
    assert hostile.wrong <= 3


@pytest.mark.parametrize("name", ["lists: an empty 200", "lists: a page in a 200", "lists: XML of a proxy"])
def test_what_is_no_listing_does_not_make_an_object_absent(hostile: HostileStore, name: str) -> None:
    hostile.set(LISTINGS[name])
    with pytest.raises(ObjectStoreError) as raised:
        S3ObjectStore(settings=settings(hostile)).exists(ObjectLocation("lake", "t/\x01"))
    assert not isinstance(raised.value, ObjectNotFound)
