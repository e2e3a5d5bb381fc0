"""Histories in which sweeps tag files for a rule that acts at once after each look."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest

from delegation.removal.orphans import released
from tests.effort import sampled
from tests.faults.orphans.history import History
from tests.kit.explorer import Explorer
from tests.unit.removal.orphans.quarantine.world import Lagoon


class TaggedHistory(History):
    """A history whose sweeps tag; the bucket's rule deletes what has the tag after each of them that ended."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        world = self.world = Lagoon()
        self.tables = [world.table("t"), world.table("u")]
        self.recreated = 0

    def recreate(self) -> None:
        """Drop the first table without its files, and make another one with a uuid of its own at its location."""
        if not self.unfinished and "t" in self.world.lake.pointers:
            self.uuids.add(str(self.tables[0].document["table-uuid"]))
            self.world.unlist("t")
            self.tables[0] = self.world.table("t")
            self.recreated += 1

    def act(self) -> None:
        if self.random.random() < 0.1:
            self.recreate()
        # More of what leads to a tagged file that a table takes, and to the next look.
        if self.random.random() < 0.5:
            self.random.choice([self.write, self.commit, self.commit, self.sweep, self.sweep])()
        else:
            super().act()

    def sweep(self) -> None:
        ended = self.counts["finished"]
        super().sweep()
        if self.counts["finished"] > ended and self.random.random() < 0.5:
            world: Any = self.world
            world.context(self.tables[0])
            self.counts["ruled"] += len(world.lifecycle())

    def _between(self, ctx: Any) -> None:
        super()._between(ctx)
        usual = ctx.store.tag

        def tag(bucket: str, one: Any) -> str | None:
            if self.random.random() < 0.1:
                self._rewritten([f"s3://{bucket}/{one.key}"])
            code: str | None = usual(bucket, one)
            return code

        ctx.store.tag = tag


@contextmanager
def no_tag_taken_away() -> Iterator[None]:
    with patch.object(released, "_released", lambda _ctx, one, _here, _failed: not one):
        yield


EXPLORER = Explorer(__name__, TaggedHistory, mutations={"kept": no_tag_taken_away})


SEEDS = sampled(itertools.product((0, 20), (range(9, 12), range(75))), lambda case: len(case[1]) < 10)


@pytest.mark.parametrize(("few", "seeds"), SEEDS, ids=str)
def test_a_rule_that_acts_after_a_comparison_costs_no_table_a_file(
    monkeypatch: pytest.MonkeyPatch, few: int, seeds: range
) -> None:
    """With `few` = 0 every plan that has nothing more to state is left out at once."""
    monkeypatch.setattr(released, "_FEW", few)
    assert EXPLORER.total(seeds)["ruled"] > 3


def test_these_histories_notice_that_no_tag_is_taken_away() -> None:
    assert EXPLORER.first_bad("kept", range(7, 200)) is not None
