"""Checks just before deletion that each object is as it was listed. HEAD checks one object; a page of a listing checks
up to a thousand, so it is used for neighbours in the order of keys. Objects that a page does not show unchanged are
checked by HEAD. Outside AWS a listing may be older than HEAD, so it is used only if the delete has the object's ETag as
its condition."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from delegation.storage.base import ObjectStoreError
from delegation.storage.listing.model import CHANGED, ListedObject
from delegation.storage.listing.pages import page, seconds
from delegation.storage.s3_errors import ABSENT, FAILED, NO_ANSWER, code_of, delete_code_of, is_bare_404

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_AT_A_TIME: Final = 4
"""HEADs under way, within one delete."""
PAGE_PAYS: Final = 8
"""Objects that a page must settle: it costs as much as 13 HEADs and takes the CPU time of 4."""
_REST: Final = 16
"""Deletes that are looked at by HEAD alone after one for which pages did not pay."""


class Looks:
    """Checks the objects of one store; remembers whether pages saved requests. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._rest = 0

    def at(
        self, client: "S3Client", bucket: str, some: Sequence[ListedObject], *, by_pages: bool
    ) -> list[tuple[ListedObject, str | None]]:
        """Return each object with None if it is as listed, else CHANGED, a code in ABSENT or another error."""
        same = self._listed_again(client, bucket, some) if by_pages else frozenset()
        rest = [one for one in some if one.key not in same]
        if not rest:
            return [(one, None) for one in some]
        with ThreadPoolExecutor(min(_AT_A_TIME, len(rest)), thread_name_prefix="look") as pool:
            codes = dict(
                zip((one.key for one in rest), pool.map(lambda one: head(client, bucket, one), rest), strict=True)
            )
        return [(one, codes.get(one.key)) for one in some]

    def _listed_again(self, client: "S3Client", bucket: str, some: Sequence[ListedObject]) -> frozenset[str]:
        """Return the keys that pages show unchanged; reads few pages, and none for a while if few pay."""
        most = len(some) // PAGE_PAYS
        with self._lock:
            if not most or self._rest:
                self._rest -= bool(self._rest)
                return frozenset()
        found, pages = _pages(client, bucket, some, most)
        if len(found) < pages * PAGE_PAYS:
            with self._lock:
                self._rest = _REST
        return found


def _pages(client: "S3Client", bucket: str, some: Sequence[ListedObject], most: int) -> tuple[frozenset[str], int]:
    """Return the keys that up to `most` pages show unchanged, and the number of pages. Ends after a page that does not
    pay: the rest is as far apart."""
    wanted = {one.key: one for one in some}
    keys = sorted(wanted)
    first, last = keys[0], keys[-1]
    common = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    # Whole folders, so that credentials for a location may list it.
    prefix = first[: first.rfind("/", 0, common) + 1]
    found: set[str] = set()
    at, pages, end = 0, 0, ""
    while at < len(keys) and pages < most:
        pages += 1
        try:
            # Between this and the key are only keys that begin with it.
            listed = page(client, bucket, prefix, max(end, keys[at][:-1]))
        except (*FAILED, ObjectStoreError):
            break
        found |= {one.key for one in listed.objects if wanted.get(one.key) == one}
        if listed.is_last or not listed.objects or len(found) < pages * PAGE_PAYS:
            break
        end = listed.objects[-1].key
        while at < len(keys) and keys[at] <= end:
            at += 1
    return frozenset(found), pages


def head(client: "S3Client", bucket: str, one: ListedObject) -> str | None:
    """Return None for an object as listed, else CHANGED, a code in ABSENT or another error code."""
    try:
        found: Any = client.head_object(Bucket=bucket, Key=one.key)
    except FAILED as error:
        if not (isinstance(error, ClientError) and (is_bare_404(error) or code_of(error) in ABSENT)):
            return delete_code_of(error)
        return _absent(client, bucket, one.key)
    if "LastModified" not in found:
        return NO_ANSWER
    same = found.get("ETag", "") == one.etag and seconds(found["LastModified"]) == one.modified
    return None if same and found["ContentLength"] == one.size else CHANGED


def _absent(client: "S3Client", bucket: str, key: str) -> str:
    """Return why HEAD found no object: its 404 does not state whether the bucket exists."""
    try:
        client.get_object(Bucket=bucket, Key=key, Range="bytes=0-0")["Body"].close()
    except ClientError as error:
        return code_of(error) if code_of(error) in ABSENT else delete_code_of(error)
    except FAILED as error:
        return delete_code_of(error)
    return CHANGED
