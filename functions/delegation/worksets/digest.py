"""The SHA-256 of the sorted list of all paths that a purge deletes, which an auditor can compute from the chunks:

zcat DATA-* META-* ROOT-* | jq -r .path | LC_ALL=C sort | sha256sum
"""

import hashlib
from collections.abc import Sequence

from delegation.storage.base import PlanStore
from delegation.worksets.chunks import Phase
from delegation.worksets.errors import PlanLost
from delegation.worksets.index import PlanIndex, planned_lists


def paths_digest(store: PlanStore, indexes: Sequence[PlanIndex]) -> str | None:
    """Return the SHA-256 (hex) of the sorted planned paths in UTF-8, each with a newline; raise PlanTampered.

    None if a chunk was lost after its files were deleted.
    """
    digest = hashlib.sha256()
    try:
        for paths in planned_lists(store, indexes, (Phase.DATA, Phase.META, Phase.ROOT)):
            digest.update(("\n".join(paths) + "\n").encode())
    except PlanLost:
        return None
    return digest.hexdigest()
