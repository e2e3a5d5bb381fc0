"""The types of policies that can become rules."""

from enum import Enum

_SYSTEM = "system."


class PolicyType(Enum):
    """Polaris' predefined types of maintenance (PredefinedPolicyTypes); each is inheritable."""

    SNAPSHOT_EXPIRY = "system.snapshot-expiry"
    ORPHAN_FILE_REMOVAL = "system.orphan-file-removal"
    METADATA_COMPACTION = "system.metadata-compaction"
    DATA_COMPACTION = "system.data-compaction"

    @property
    def short(self) -> str:
        """The name in properties, `snapshot-expiry`."""
        return self.value.removeprefix(_SYSTEM)

    @classmethod
    def named(cls, text: str) -> "PolicyType | None":
        """Return the type of a name with or without `system.`, None for another name."""
        return next((one for one in cls if text in {one.value, one.short}), None)
