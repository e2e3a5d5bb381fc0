"""Which listed objects may be orphans at all: visible, old enough by the store's clock, and clear in name. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from delegation.errors import GuardRefused
from delegation.operations.orphans.errors import AgeTooShort
from delegation.removal.paths import ORPHAN_AGE, age_text_of
from delegation.storage.listing.model import ListedObject
from delegation.storage.locations import LOCAL, Root, canonical, uri_of
from delegation.timestamps import parse_duration
from polaris_common.errors import printable

AGE: Final = timedelta(days=3)
"""How old a file is at least, by default; the same as Iceberg's."""
LEAST_AGE: Final = timedelta(hours=24)
_VERSION_HINT: Final = "metadata/version-hint.text"
_NOT_PLAIN: Final = ("/_", "/.", "/\n", "#", "?", "\x00")
"""What keys have that are hidden, of a directory marker, or not clear; a few others have it too."""


def checked_age(wanted: timedelta) -> timedelta:
    """Return the age that a request wants; raise AgeTooShort for less than a day."""
    if wanted < LEAST_AGE:
        raise AgeTooShort(
            f"files are orphans after {wanted}, and 24 hours are the least: a job may commit younger ones still"
        )
    return wanted


def age_of(wanted: timedelta, properties: Mapping[str, str]) -> timedelta:
    """Return how old a file has to be: what is wanted, or what the table's property states if that is longer.

    Raises AgeTooShort for less than a day, and GuardRefused (AGE_INVALID) if the property is no duration.
    """
    return max(checked_age(wanted), age_in(properties, "the table"))


def age_in(properties: Mapping[str, str], who: str) -> timedelta:
    """Return the age that a table's property states, zero without one; raise GuardRefused (AGE_INVALID)."""
    text = age_text_of(properties, who)
    try:
        return timedelta(0) if text is None else parse_duration(text)
    except ValueError as error:
        raise GuardRefused(
            f"{printable(who)}'s property {ORPHAN_AGE} is not a duration such as 7d or PT48H", code="AGE_INVALID"
        ) from error


def hidden_partitions(metadata: Mapping[str, Any]) -> frozenset[str]:
    """Return how the directories of partition fields with hidden names begin: those are looked into all the same.

    Source: Iceberg, PartitionAwareHiddenPathFilter.
    """
    specs = metadata.get("partition-specs")
    lists = [one.get("fields") for one in specs if isinstance(one, Mapping)] if isinstance(specs, list) else []
    fields = (field for one in lists if isinstance(one, list) for field in one if isinstance(field, Mapping))
    names = (field.get("name") for field in fields)
    return frozenset(f"{name}=" for name in names if isinstance(name, str) and name.startswith(("_", ".")))


@dataclass(frozen=True, slots=True)
class Eligible:
    """Decides about the objects of one place; `age` is in whole seconds."""

    root: Root
    age: int
    partitions: frozenset[str] = frozenset()

    def admits(self, one: ListedObject, at: int) -> bool:
        """Return whether an object may be an orphan; `at` is the store's time of the listing.

        Directory markers and keys that no path can name without doubt are none.
        """
        if at - one.modified <= self.age or not self._is_visible(one.key):
            return False
        uri = uri_of(self.root.bucket, one.key)
        try:
            return not one.key.endswith("/") and canonical(uri) == uri and "\x00" not in uri + one.etag
        except GuardRefused:
            return False

    def _is_visible(self, key: str) -> bool:
        below = key.removeprefix(f"{self.root.prefix}/")
        if below in (key, _VERSION_HINT):
            return False
        return not any(
            part.startswith(("_", ".")) and not part.startswith(tuple(self.partitions)) for part in below.split("/")
        )

    def some(self, objects: Iterable[ListedObject], at: int) -> list[ListedObject]:
        """Return those of a page that may be orphans."""
        before = at - self.age
        old = [one for one in objects if one.modified < before]
        return old if self._are_plain(old) else [one for one in old if self.admits(one, at)]

    def _are_plain(self, some: Sequence[ListedObject]) -> bool:
        """Return whether all keys are visible and clear beyond doubt, as those of a writer are."""
        below = f"{self.root.prefix}/"
        keys = "\n".join(("", *[one.key for one in some], ""))
        return (
            self.root.bucket != LOCAL
            and keys.isascii()
            and keys.count("\n") == len(some) + 1
            and keys.count(f"\n{below}") == len(some)
            and not any(one in keys for one in (*_NOT_PLAIN, _VERSION_HINT))
            and "\x00" not in "".join([one.etag for one in some])
        )
