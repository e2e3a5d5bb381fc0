"""Mutants that a reader chose who had written none of the code: one or a few of each room."""

from typing import Final

from tests.mutants.mutant import Mutant

DELEGATION: Final = "functions/delegation/"
PURGES: Final = "tests/unit/removal/purge/"
EXPIRIES: Final = "tests/unit/removal/expiry/"
ORPHANS: Final = "tests/unit/removal/orphans/"
GATEWAY: Final = "tests/unit/gateway/"

READ: Final = (
    Mutant(
        "files that a purge kept for any reason go with the purge of a neighbour",
        f"{DELEGATION}removal/purge/kept_files.py",
        'if record["kept"] == _SHARED and roots.contains(path)',
        "if roots.contains(path)",
        (f"{PURGES}planning/test_taken_over.py",),
    ),
    Mutant(
        "an expiry compares other tables as of a pass that began before its commit",
        f"{DELEGATION}removal/expiry/run.py",
        "            notes.put(PassRequest(asked=False))\n",
        "",
        (f"{EXPIRIES}attacks/test_refs.py",),
    ),
    Mutant(
        "a needed path that is in two batches of candidates is an orphan in the second",
        f"{DELEGATION}removal/orphans/subtraction.py",
        "        own &= wanted\n",
        "        own.clear()\n",
        (f"{ORPHANS}test_rules.py",),
    ),
    Mutant(
        "Spark: what an exempt table cannot read is not read for the next table that names it",
        f"{DELEGATION}removal/sources.py",
        "        if not is_noted:\n            # An unreadable",
        "        if True:\n            # An unreadable",
        (f"{PURGES}spark/test_tasks.py",),
    ),
    Mutant(
        "a delete from before all marks became void marks its chunk",
        f"{DELEGATION}removal/deletes.py",
        "record(Marks(plans, work.index.plan_id, work.voided), work, outcome)",
        "record(Marks(plans, work.index.plan_id), work, outcome)",
        (f"{PURGES}test_confirmed_but_there.py",),
    ),
    Mutant(
        "pauses: an earlier drain hides a later stop",
        f"{DELEGATION}tasks/pauses.py",
        "key=lambda pause: (pause.mode is PauseMode.DRAIN, pause.since)",
        "key=lambda pause: pause.since",
        ("tests/unit/tasks/pauses/test_pauses.py",),
    ),
    Mutant(
        "work that never runs twice runs again after a job that was interrupted",
        f"{DELEGATION}tasks/life/outcomes.py",
        "return task.status is Status.RUNNING or task.engine is not None",
        "return task.status is Status.RUNNING",
        ("tests/unit/orchestration/test_ended_invocations.py",),
    ),
    Mutant(
        "DynamoDB: a write that was applied is refused because its head was renewed since",
        f"{DELEGATION}tasks/stores/dynamodb.py",
        "or head.version < after.version:",
        "or head.version <= after.version:",
        ("tests/unit/tasks/stores/test_dynamodb_faults.py",),
    ),
    Mutant(
        "gateway: a drop is answered by the drop of another table of the name",
        f"{DELEGATION}gateway/drop/sequence.py",
        "is_same = other.expected_uuid == record.expected_uuid and other.tombstone_id != record.tombstone_id",
        "is_same = other.tombstone_id != record.tombstone_id",
        (f"{GATEWAY}drop/test_duplicates.py",),
    ),
    Mutant(
        "gateway: a replay gets the credentials of another table of the name",
        f"{DELEGATION}gateway/keys/calls.py",
        '    return metadata.get("table-uuid") or metadata.get("view-uuid")\n',
        '    return metadata.get("location")\n',
        (f"{GATEWAY}keys/test_service.py",),
    ),
    Mutant(
        "gateway: a commit that the catalog recorded for a former table answers for the one of its name",
        f"{DELEGATION}gateway/keys/calls.py",
        'return self.rule.of_recorded(state) if same_uuid(state.metadata["table-uuid"], uuid) else None',
        "return self.rule.of_recorded(state)",
        (f"{GATEWAY}keys/test_catalogs_keys.py",),
    ),
    Mutant(
        "an effect of a former call that appears late is refused as a conflict with itself",
        f"{DELEGATION}idempotency/mutations.py",
        "late = mutation.verify(attempt) if answer.is_refusal else None",
        "late = None",
        ("tests/contract/mutations/test_faults.py", "tests/contract/mutations/test_service.py"),
    ),
    Mutant(
        "a process that leaves a pass forgets the names of which one may have lost its table",
        f"{DELEGATION}references/sightings.py",
        "return max(self._again_to or (), early, self._disputed_to) or None",
        "return max(self._again_to or (), early) or None",
        ("tests/unit/references/test_moving_tables.py",),
    ),
    Mutant(
        "a first pass that another process continues does not look again at what was visited",
        f"{DELEGATION}references/refresh.py",
        "        return replace(owned, again_to=max(state.again_to or (), state.position))\n",
        "        return owned\n",
        ("tests/unit/references/test_moving_tables.py",),
    ),
    Mutant(
        "a pass starts two kinds of upkeep on one table",
        f"{DELEGATION}upkeep/schedule.py",
        "                busy.add(need.table)\n",
        "",
        ("tests/unit/upkeep/schedule/test_choice.py",),
    ),
    Mutant(
        "a policy starts a run on a table whose purge is under way",
        f"{DELEGATION}upkeep/execution/kinds.py",
        "purge_under_way(reads, self.realm, name, health.table_uuid) is not None:",
        "purge_under_way(reads, self.realm, name, health.metadata_location) is not None:",
        ("tests/unit/upkeep/execution/test_sweeps.py",),
    ),
    Mutant(
        "a certificate is accepted although the authority above its issuer is revoked",
        f"{DELEGATION}edge/trust/revocation.py",
        "                self._check_issuers(issuer, now, lists, longest - 1)\n",
        "",
        ("tests/unit/edge/trust/test_chains.py",),
    ),
    Mutant(
        "S3: a key that no XML can hold is deleted without its condition",
        f"{DELEGATION}storage/listing/unchanged.py",
        "etag = listed.etag if is_conditional else None",
        "etag = listed.etag if self._conditions is Conditions.ONE else None",
        (
            "tests/contract/test_listings.py::test_a_key_that_xml_cannot_contain_has_its_condition_where_others_go_in_one_call",
        ),
    ),
    Mutant(
        "a manifest list that was unreadable once is empty for the clones of its table",
        f"{DELEGATION}iceberg/reach.py",
        "        if listed is not None:\n            read.note(path, listed)\n",
        "        read.note(path, listed or [])\n",
        (f"{PURGES}spark/test_tasks.py",),
    ),
    Mutant(
        "client: an access token is in the text of a step",
        f"{DELEGATION}client/conversations.py",
        "    token: str = field(repr=False)\n",
        "    token: str\n",
        ("tests/unit/client/test_client.py",),
    ),
    Mutant(
        "what is owed to a receiver that is set apart waits longer at each pass that finds its queue full",
        f"{DELEGATION}notifications/delivery.py",
        "if owed.parked and left[pool] <= 0:",
        "if owed.parked and left[pool] < 0:",
        ("tests/unit/notifications/test_delivery.py",),
    ),
    Mutant(
        "a callback that was captured is accepted a day later",
        f"{DELEGATION}client/callbacks.py",
        "> self._fresh_for.total_seconds():",
        "> self._fresh_for.total_seconds() * 300:",
        ("tests/unit/notifications/test_signatures.py",),
    ),
    Mutant(
        "a key is free while its holder may still write",
        f"{DELEGATION}idempotency/mutations.py",
        "return self._clock() < stored.lost_not_before",
        "return self._clock() < stored.lost_not_before - self._policy.clock_drift",
        ("tests/contract/mutations/test_service.py",),
    ),
    Mutant(
        "a revocation list is used after its next update whatever the setting says",
        f"{DELEGATION}edge/trust/revocation.py",
        "if self.next_update < now and outdated is OutdatedList.REFUSE:",
        "if self.next_update < self.this_update and outdated is OutdatedList.REFUSE:",
        ("tests/unit/edge/trust/test_revocation.py",),
    ),
    Mutant(
        "Polaris is asked again after the caller has given up",
        f"{DELEGATION}polaris/transport.py",
        "return wait if spent_seconds + wait <= self.patience_seconds else None",
        "return wait if spent_seconds <= self.patience_seconds else None",
        ("tests/unit/polaris/test_patience.py",),
    ),
    Mutant(
        "manifest lists of clones are remembered without a bound",
        f"{DELEGATION}iceberg/reach.py",
        "if path not in self._named and len(manifests) <= self._left:",
        "if path not in self._named:",
        ("tests/unit/iceberg/test_lists_read.py",),
    ),
    Mutant(
        "S3: the clients of all credentials that a table ever had are kept",
        f"{DELEGATION}storage/s3.py",
        "                if len(self._clients) >= 16:\n                    self._clients.clear()\n",
        "",
        ("tests/unit/storage/test_s3.py",),
    ),
    Mutant(
        "a drop that cannot be finished is counted one look too late",
        f"{DELEGATION}gateway/drop/tombstones.py",
        "return self.attempts >= STUCK_AFTER",
        "return self.attempts > STUCK_AFTER",
        (f"{GATEWAY}drop/test_records.py",),
    ),
    Mutant(
        "a table with the least number of small files is never compacted",
        f"{DELEGATION}upkeep/execution/rewrites.py",
        "health.small_files >= DEFAULT_MIN_INPUT_FILES",
        "health.small_files > DEFAULT_MIN_INPUT_FILES",
        ("tests/unit/upkeep/execution/test_rewrites.py",),
    ),
    Mutant(
        "an exemption of an unreadable table has no end",
        f"{DELEGATION}references/blocking.py",
        "return same and accepted and now < self.until and not blocking.was_never_read",
        "return same and accepted and not blocking.was_never_read",
        ("tests/unit/references/test_model.py",),
    ),
)
"""What a fresh reader chose where a file, a task, an answer or a secret is at stake."""
