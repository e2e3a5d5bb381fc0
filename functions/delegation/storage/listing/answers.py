"""The answer of ListObjectsV2, read in one pass (Amazon S3 API Reference, ListObjectsV2).

botocore takes ten times as long for a page of a thousand objects. As with deletes (`delete_objects.events`), its
parser is replaced for the versions of botocore that are pinned there, through its events, and only for answers in the
form that S3 documents: any other is left to it, and means the same.
"""

from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote_plus
from xml.etree import ElementTree

from delegation.storage.listing.model import ListedObject
from delegation.storage.sessions import time_of

READ: Final = "DelegationListing"
"""The name under which a page that was read here is in what the client returns."""
_NAMESPACES: Final = ("{http://s3.amazonaws.com/doc/2006-03-01/}", "")
_FIELDS: Final = ("Key", "Size", "ETag", "LastModified")
_REGULAR: Final = frozenset({"true", "false"})


@dataclass(frozen=True, slots=True)
class ListingAnswer:
    """The objects of a page, and whether there are more."""

    objects: tuple[ListedObject, ...]
    truncated: bool


def read_body(response_dict: dict[str, Any], customized_response_dict: dict[str, Any]) -> None:
    """Read an answer in S3's form and leave botocore an empty one, as a handler of `before-parse` may."""
    if response_dict["status_code"] == 200:
        answer = read_listing(response_dict["body"])
        if answer is not None:
            customized_response_dict[READ] = answer
            response_dict["body"] = b""


def read_listing(body: bytes) -> ListingAnswer | None:
    """Return what a page in S3's form says, None for every other answer and for one with common prefixes."""
    try:
        root = ElementTree.fromstring(body)  # noqa: S314 - botocore reads the same bytes with it
    except ElementTree.ParseError:
        return None
    namespace = root.tag.removesuffix("ListBucketResult")
    if namespace not in _NAMESPACES or namespace == root.tag:
        return None
    once: dict[str, str] = {}
    listed, common = f"{namespace}Contents", f"{namespace}CommonPrefixes"
    contents: list[ElementTree.Element] = []
    for child in root:
        if child.tag == listed:
            contents.append(child)
        elif child.tag in once or child.tag == common:
            return None
        else:
            once[child.tag] = child.text or ""
    truncated = once.get(f"{namespace}IsTruncated", "false")
    encoding = once.get(f"{namespace}EncodingType", "")
    if truncated not in _REGULAR or encoding not in {"", "url"}:
        return None
    objects = _objects(contents, [f"{namespace}{name}" for name in _FIELDS], is_encoded=encoding == "url")
    return None if objects is None else ListingAnswer(objects, truncated == "true")


def _objects(
    contents: list[ElementTree.Element], names: list[str], *, is_encoded: bool
) -> tuple[ListedObject, ...] | None:
    """Return the objects, None if one is not described by exactly one text for each name.

    Where the names are is found out once for all objects that have the same elements, and a time is read once.
    """
    keys: list[str] = []
    rest: list[tuple[int, str, int]] = []
    shape: list[str] = []
    places: list[int] = []
    times: dict[str, int] = {}
    for one in contents:
        tags = [child.tag for child in one]
        if tags != shape:
            if any(tags.count(name) != 1 for name in names):
                return None
            shape, places = tags, [tags.index(name) for name in names]
        elements = [one[place] for place in places]
        if any(map(len, elements)):
            return None
        key, size, etag, modified = [element.text or "" for element in elements]
        try:
            seconds = times.get(modified)
            if seconds is None:
                seconds = times[modified] = int(time_of(modified).timestamp())
            rest.append((int(size), etag, seconds))
        except ValueError:
            return None
        keys.append(key)
    decoded = _decoded(keys) if is_encoded else keys
    return tuple([ListedObject(key, *others) for key, others in zip(decoded, rest, strict=True)])


def _decoded(keys: list[str]) -> list[str]:
    """Return URL-encoded keys as they are: all at once, unless one of them has a line break."""
    together = unquote_plus("\n".join(keys)).split("\n")
    return together if len(together) == len(keys) else [unquote_plus(key) for key in keys]
