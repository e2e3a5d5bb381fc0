import os
import time
from collections.abc import Iterator
from itertools import islice
from operator import itemgetter
from pathlib import Path

from delegation.storage.base import ObjectStoreDenied
from delegation.storage.listing.model import PAGE, ListedFolder, ListedObject, ListedPage


def page(prefix: str, after: str) -> ListedPage:
    """Return a page in the order of keys, as an object store would; the clock is this machine's."""
    at = int(time.time())
    directory = prefix.rpartition("/")[0]
    found = (one for one in _below(directory, after) if one.key.startswith(prefix) and one.key > after)
    objects = tuple(islice(found, PAGE + 1))
    return ListedPage(objects[:PAGE], at, len(objects) <= PAGE)


def folder(prefix: str) -> ListedFolder:
    at = int(time.time())
    entries = list(_entries(prefix.rstrip("/")))
    objects = tuple(one for key, entry in entries if not key.endswith("/") and (one := listed(key, entry)) is not None)
    return ListedFolder(objects, tuple(key for key, _ in entries if key.endswith("/")), at, is_whole=True)


def listed(key: str, entry: "os.DirEntry[str] | Path") -> ListedObject | None:
    """Return a file as listed, None for anything else or a missing file; links are not followed."""
    try:
        found = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
    # A rewrite of a file changes at least one of these.
    return ListedObject(key, found.st_size, f"{found.st_ino}-{found.st_mtime_ns}-{found.st_size}", int(found.st_mtime))


def _below(directory: str, after: str) -> Iterator[ListedObject]:
    for key, entry in _entries(directory):
        if not key.endswith("/"):
            one = listed(key, entry)
            if one is not None:
                yield one
        elif key > after or after.startswith(key):
            yield from _below(key[:-1], after)


def _entries(directory: str) -> list[tuple[str, "os.DirEntry[str]"]]:
    """Return the files and, with `/` at the end, directories in a directory by key; nothing else. Names that are not
    Unicode are left out: no table can name such a file."""
    found: list[tuple[str, os.DirEntry[str]]] = []
    try:
        with os.scandir(f"/{directory}") as entries:
            found = [
                (
                    f"{directory}/{entry.name}/"
                    if entry.is_dir(follow_symlinks=False)
                    else f"{directory}/{entry.name}",
                    entry,
                )
                for entry in entries
                if entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False)
            ]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise ObjectStoreDenied(f"cannot list /{directory}: {error.strerror}") from error
    return sorted(((key.lstrip("/"), entry) for key, entry in found if _is_unicode(key)), key=itemgetter(0))


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
