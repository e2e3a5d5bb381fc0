"""The tag of a quarantined object, and the seam that sets and removes it.

A lifecycle rule of the bucket deletes what has the tag (docs/orphans.md). Vended credentials have none of the rights.
"""

from enum import StrEnum
from typing import Final, Protocol

from delegation.storage.listing.model import ListedObject

TAG: Final = ("delegation-quarantine", "orphan")
"""Key and value of the tag: one pair for all files, because the filter of a lifecycle rule names both."""
MOST_TAGS: Final = 10
"""Tags that an object has at most (Amazon S3 User Guide, "Categorizing your objects using tags")."""
TAGS_FULL: Final = "TagsFull"
"""The code of an object that was not tagged, because it has as many tags of others as an object may have."""
GONE: Final = "NoSuchKey"
"""The code of an object that is not there any more."""
TAG_RIGHTS: Final = (
    "s3:GetObject",
    "s3:GetObjectVersion",
    *(f"s3:{verb}Object{part}Tagging" for verb in ("Get", "Put", "Delete") for part in ("", "Version")),
)
"""What the credentials need for the objects (Amazon S3 User Guide, Actions for Amazon S3)."""


class TagFound(StrEnum):
    TAGGED = "tagged"
    """As it was listed, with the tag, which is removed."""
    UNTAGGED = "untagged"
    """As it was listed, without the tag."""
    CHANGED = "changed"
    """Another object is there now; a tag that it has is removed."""
    ABSENT = "absent"


class TagStore(Protocol):
    """Objects and their tags. Thread-safe."""

    def tag(self, bucket: str, one: ListedObject) -> str | None:
        """Set the tag of an object that is as it was listed, besides its other tags; return None, or an error code.

        The codes are CHANGED, TAGS_FULL, GONE, and those of a delete. With versions it is the
        listed version that is tagged. Elsewhere the object is looked at before and after, and an object that was
        written between loses the tag again: if nothing is left to do that, as after a crash, the next call for the key
        does.
        """
        ...

    def untag(self, bucket: str, one: ListedObject, *, dry_run: bool = False) -> TagFound:
        """Remove the tag, and no other; with `dry_run` only look. Raises the errors of an object store."""
        ...
