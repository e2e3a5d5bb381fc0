"""The service's own table properties, by which a table's owner restricts what is done to it."""

from collections.abc import Mapping
from typing import Final

from delegation.errors import GuardRefused
from delegation.iceberg.metadata import PROTECTED
from delegation.misspellings import did_you_mean, misspelled
from delegation.worksets.index import SAMPLE, Finding
from polaris_common.errors import printable

PREFIX: Final = "delegation."
ORPHAN_AGE: Final = "delegation.orphan-files.older-than"
"""The age of orphan files, for jobs that write longer before they commit."""
POLICY: Final = "delegation.policy."
POLICY_TYPES: Final = ("snapshot-expiry", "orphan-file-removal", "metadata-compaction", "data-compaction")
"""What follows POLICY; the names of each type are known to `upkeep.rules`."""
UNKNOWN: Final = "TABLE_PROPERTY_UNKNOWN"
"""The code of a finding: properties of the service's prefix that no release knows."""
TYPED: Final = tuple(f"{POLICY}{one}." for one in POLICY_TYPES)


def unknown_properties(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names with the service's prefix that have no effect."""
    ours = (name for name in properties if name.startswith(PREFIX))
    return tuple(sorted(one for one in ours if one not in {PROTECTED, ORPHAN_AGE} and not one.startswith(TYPED)))


def unknown_findings(properties: Mapping[str, str]) -> tuple[Finding, ...]:
    """Return the finding about properties that have no effect, none without one."""
    names = unknown_properties(properties)
    sample = tuple(f"{printable(one)} ({did_you_mean(one, (PROTECTED, ORPHAN_AGE, *TYPED))})" for one in names[:SAMPLE])
    return (Finding(code=UNKNOWN, count=len(names), sample=sample),) if names else ()


def protection_of(properties: Mapping[str, str]) -> str | None:
    """Return the property that forbids to delete the table's files, with its value; None without one.

    Every text but "false" in any case protects, also of a name that is misspelled: a wish to keep the table must not
    delete it.
    """
    for name, value in properties.items():
        if value.lower() != "false" and misspelled(name, (PROTECTED,)):
            meant = "" if name == PROTECTED else f" (taken for {PROTECTED})"
            return f"{printable(name)}{meant} is {printable(value)}"
    return None


def age_text_of(properties: Mapping[str, str], who: str) -> str | None:
    """Return the age of orphan files that a table states; raise GuardRefused (AGE_INVALID) for a misspelled name."""
    for name in properties:
        if name != ORPHAN_AGE and misspelled(name, (ORPHAN_AGE,)):
            raise GuardRefused(
                f"{printable(who)} has the property {printable(name)}; did you mean {ORPHAN_AGE}? Set that one and "
                "remove the other",
                code="AGE_INVALID",
            )
    return properties.get(ORPHAN_AGE)
