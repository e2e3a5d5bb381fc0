"""Histories in which sweeps tag files for a rule that acts at once after each look."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from delegation.removal.orphans import released
from tests.effort import examples
from tests.faults.orphans.history import _ACTS, STEPS, History, needed_and_gone
from tests.unit.operations.orphans.quarantine.world import Lagoon


class TaggedHistory(History):
    """A history whose sweeps tag; the bucket's rule deletes what has the tag after each of them that ended."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        world = self.world = Lagoon()
        self.tables = [world.table("t"), world.table("u")]
        self.ruled = self.sweeps = self.recreated = 0

    def recreate(self) -> None:
        """Drop the first table without its files, and make another one with a uuid of its own at its location."""
        if not self.unfinished and "t" in self.world.lake.pointers:
            self.uuids.add(str(self.tables[0].document["table-uuid"]))
            self.world.unlist("t")
            self.tables[0] = self.world.table("t")
            self.recreated += 1

    def act(self) -> None:
        if self.choose.random() < 0.1:
            self.recreate()
        # More of what leads to a tagged file that a table takes, and to the next look.
        if self.choose.random() < 0.5:
            self.choose.choice([self.write, self.commit, self.commit, self.sweep, self.sweep])()
            return
        getattr(self, self.choose.choice(_ACTS).__name__)()

    def sweep(self) -> None:
        ended = self.sweeps
        super().sweep()
        if self.sweeps > ended and self.choose.random() < 0.5:
            world: Any = self.world
            world.context(self.tables[0])
            self.ruled += len(world.lifecycle())

    def _between(self, ctx: Any) -> None:
        super()._between(ctx)
        usual = ctx.store.tag

        def tag(bucket: str, one: Any) -> str | None:
            if self.choose.random() < 0.1:
                self._rewritten([f"s3://{bucket}/{one.key}"])
            code: str | None = usual(bucket, one)
            return code

        ctx.store.tag = tag


@contextmanager
def counted_ends(history: TaggedHistory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Count the sweeps that tagged: what is taken after the only look of another one is the rule's."""
    from tests.faults.orphans import history as module

    usual = module.remove_orphan_files

    def remove(ctx: Any) -> Any:
        result = usual(ctx)
        history.sweeps += result.status == "SWEPT"
        return result

    monkeypatch.setattr(module, "remove_orphan_files", remove)
    yield
    monkeypatch.undo()


def play(history: History, seed: int) -> None:
    for step in range(STEPS):
        history.act()
        assert history.deleted_live == 0, f"seed {seed}, step {step}"
        assert needed_and_gone(history) == set(), f"seed {seed}, step {step}"


def play_tags(seed: int, monkeypatch: pytest.MonkeyPatch) -> int:
    history = TaggedHistory(seed)
    with counted_ends(history, monkeypatch):
        play(history, seed)
    return history.ruled


@pytest.mark.parametrize("few", [0, 20])
def test_a_rule_that_acts_after_a_look_costs_no_table_a_file(monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    """With `few` = 0 every plan that has nothing more to state is left out at once."""
    with monkeypatch.context() as patch:
        patch.setattr(released, "_FEW", few)
        assert sum(play_tags(seed, patch) for seed in range(examples(75))) > 3


def test_these_histories_notice_that_no_tag_is_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def kept(_ctx: Any, one: Any, _here: Any, _failed: Any) -> bool:
        return not one

    def costs(seed: int) -> bool:
        with monkeypatch.context() as patch:
            patch.setattr(released, "_released", kept)
            try:
                play_tags(seed, patch)
            except AssertionError:
                return True
        return False

    assert any(costs(seed) for seed in range(200))
