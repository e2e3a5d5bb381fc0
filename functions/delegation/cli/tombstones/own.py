"""The caller's own tombstones, which the gateway lists and restores with its credential in the catalog."""

from collections.abc import Iterator
from dataclasses import dataclass

from delegation.cli.errors import CommandError
from delegation.polaris.client import PolarisClient
from delegation.polaris.errors import NoSuchTable, PolarisError
from delegation.wire.tombstones import RestoredName, RestoreRequest, TombstoneList, TombstoneRecord

TIMEOUT_SECONDS = 35.0
"""Longer than API Gateway's integration timeout of 29 s, after which no answer can arrive."""


def not_yours(tombstone_id: str) -> CommandError:
    """Return the error: the caller dropped no table with this tombstone."""
    return CommandError(
        f"you dropped no table with the tombstone {tombstone_id}",
        "Check the id. `delegation tombstones list --mine` shows yours; an operator restores those of others.",
        code="TOMBSTONE_NOT_FOUND",
    )


def restore_not_made(record: TombstoneRecord, error: PolarisError) -> CommandError:
    """Return the error: the gateway, or the catalog behind it, refused the restore."""
    if error.status == 409:
        other = f"delegation tombstones restore {record.tombstone_id} --mine --to {record.name}_restored"
        step = f"Do what the message states; if the name is taken: `{other}`."
    elif error.status == 403:
        step = "Have TABLE_CREATE on the namespace granted, or name one with --to in which you may create tables."
    else:
        step = "Run the same command again: it finishes what was begun."
    return CommandError(f"{record.table} was not restored: {error.answered or error}", step, code="RESTORE_REFUSED")


@dataclass(frozen=True, slots=True)
class CallersTombstones:
    """What the principal of `client`, whose requests lead through the gateway, dropped."""

    client: PolarisClient

    def all(self) -> Iterator[TombstoneRecord]:
        """Yield them, the newest first; pages are fetched on demand. Raises PolarisError."""
        token: str | None = None
        while True:
            page = TombstoneList.model_validate(self.client.own_tombstones(token))
            yield from page.tombstones
            token = page.next_page_token
            if token is None:
                return

    def find(self, tombstone_id: str) -> TombstoneRecord:
        """Return one of them; raises CommandError (TOMBSTONE_NOT_FOUND) and PolarisError."""
        found = next((one for one in self.all() if one.tombstone_id == tombstone_id), None)
        if found is None:
            raise not_yours(tombstone_id)
        return found

    def restore(self, record: TombstoneRecord, to: RestoredName | None) -> TombstoneRecord:
        """Give one a name back; raises CommandError (TOMBSTONE_NOT_FOUND) and CommandError (RESTORE_REFUSED)."""
        document = RestoreRequest(to=to).model_dump(mode="json", exclude_none=True)
        try:
            return TombstoneRecord.model_validate(self.client.restore_own_tombstone(record.tombstone_id, document))
        except NoSuchTable as error:
            raise not_yours(record.tombstone_id) from error
        except PolarisError as error:
            raise restore_not_made(record, error) from error
