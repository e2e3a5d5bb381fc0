"""One attempt of a group: its changes applied in turn, and the head that they make together. Nothing is stored yet."""

from collections.abc import Callable
from typing import Generic

from polaris_persistence.backends.base import Reference
from polaris_persistence.commits.commits import TAIL, CommitAttempt, H, fences_of
from polaris_persistence.commits.groups import Group, Pending, Round
from polaris_persistence.commits.waiting import CombinedOutcome, CombinedOutcomes
from polaris_persistence.objects.objects import Loaded, PersistedModel, encode
from polaris_persistence.objects.store import CatalogStore

InTurn = Callable[[Group[H], Reference, Round[H]], list[Pending[H]]]


class Making(Generic[H]):
    """Makes the heads of attempts. `seal` is applied to a head after all changes; with `has_files` they may name files.
    What `beside` returns for a head before that is stored under the id of the head."""

    def __init__(
        self,
        store: CatalogStore,
        seal: Callable[[H, CommitAttempt[H]], H],
        *,
        clock: Callable[[], float],
        has_files: bool,
        beside: Callable[[H], PersistedModel | None],
    ) -> None:
        self._beside = beside
        self._store = store
        self._seal = seal
        self._clock = clock
        self._has_files = has_files

    def combine(self, in_turn: InTurn[H], group: Group[H], known: Reference, base: Loaded[H] | None) -> Round[H]:
        """Apply changes one after another to the reference's head; `in_turn` returns them."""
        made: Round[H] = Round()
        head = base.value if base else None
        fences = fences_of(known, head)
        together = in_turn(group, known, made)
        for member in together:
            attempt = CommitAttempt(
                self._store,
                head,
                before=made.writes,
                memo=member.memo,
                fences=fences,
                reference=known,
                clock=self._clock,
                files=self._named(made),
            )
            try:
                changed, result = member.change(attempt)
                attempt.check_links()
                if len(together) > 1 and changed is not None:
                    # A change that cannot be encoded fails alone, not with its neighbors.
                    encode(changed.model_copy(update={"operations": (member.operation,)}))
                if member.combined is not None:
                    encode(CombinedOutcomes(outcomes=(CombinedOutcome(member.combined, True, result),)))
            except Exception as error:  # noqa: BLE001 - raised again by the commit whose change it is
                made.refusals.append((member, error))
                continue
            made.results.append((member, changed is not None, result))
            if changed is not None:
                head = made.head = changed
                made.writes |= attempt.writes
                made.files |= attempt.files
        return made

    def _named(self, made: Round[H]) -> dict[str, bytes] | None:
        return made.files if self._has_files else None

    def seal(self, made: Round[H], unsealed: H, base: Loaded[H] | None) -> Loaded[H]:
        """Return the new head, which is among the writes of the attempt; nothing is stored yet."""
        sealing = CommitAttempt(self._store, unsealed, before=made.writes, memo={}, files=self._named(made))
        now = self._store.now_us()
        head = self._seal(unsealed, sealing).model_copy(
            update={
                "seq": base.value.seq + 1 if base else 1,
                "tail": (base.key.id, *base.value.tail)[:TAIL] if base else (),
                # A commit is never older than its predecessor, because maintenance stops at an old one.
                "created_at": max(now, base.value.created_at) if base else now,
                "operations": made.operations,
            }
        )
        id_ = sealing.write(head).id
        made.writes |= sealing.writes
        made.files |= sealing.files
        if made.combined:
            made.beside.append(self._store.prepare(CombinedOutcomes(outcomes=made.combined), id_))
        if (noted := self._beside(unsealed)) is not None:
            made.beside.append(self._store.prepare(noted, id_))
        return made.writes[id_].loaded
