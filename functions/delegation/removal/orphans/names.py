"""The task types of removals of orphan files."""

from typing import Final

from delegation.tasks.life.lanes import Traits

TASK_TYPE: Final = "ORPHAN_FILES"
"""The stored `task_type` of a removal of a table's orphan files."""
PLAN_TASK_TYPE: Final = "ORPHAN_FILES_PLAN"
"""A dry run: it lists and plans, deletes nothing, and has an id of its own."""
PREFIX: Final = "delegation.orphan-files."
"""The beginning of the operator's properties of removals."""
POLICY: Final = "upkeep-policy"
"""The property of a removal that a policy asked for: the policy's dotted name. A caller's removal has none."""
TASK_TYPES: Final = frozenset({TASK_TYPE, PLAN_TASK_TYPE})
FOLDER: Final = "orphans"
"""The folder of the plan bucket that states which plans of a table were consented to."""
KEPT: Final = frozenset({"waits", "waiting_plan", "waiting_location", "approval"})
"""What the next submission of a task keeps of its details (`details.OrphanDetails`)."""
BACKGROUND: Final = Traits(is_background=True)
"""What admission knows of every removal: no other task waits for it."""
