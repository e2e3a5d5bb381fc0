"""The indexes of the DynamoDB tables, all with texts as keys: of a deployment and of the local stack."""

DUE_INDEX = "due"
ADMISSION_INDEX = "admission"
RECEIVED_INDEX = "received"
TARGET_INDEX = "target"
CORRELATION_INDEX = "correlation"
TASK_INDEXES = (
    (DUE_INDEX, "due_bucket", "due_at"),
    (ADMISSION_INDEX, "admission_bucket", "admission_key"),
    (RECEIVED_INDEX, "received_bucket", "received_key"),
    (TARGET_INDEX, "target_key", "received_key"),
    (CORRELATION_INDEX, "correlation_key", "received_key"),
)
"""The indexes of the task table with their keys, in the order in which releases added them."""
NEWEST_TOMBSTONES = "newest"
DUE_TOMBSTONES = "due"
CALLERS_TOMBSTONES = "callers"
TOMBSTONE_INDEXES = (
    (NEWEST_TOMBSTONES, "listed_in", "listed_key"),
    (DUE_TOMBSTONES, "checked_in", "check_at"),
    (CALLERS_TOMBSTONES, "caller", "listed_key"),
)
"""The indexes of the tombstones with their keys (delegation/gateway/drop/store.py)."""
EXPIRES_AT = "expires_at"
