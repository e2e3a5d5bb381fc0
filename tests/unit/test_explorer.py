"""The explorer of orders of events: it counts, continues, shortens what went wrong, and notices a missing safeguard."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.kit.explorer import Explorer, Story, WrongOutcome, play, shortened


class Purse(Story):
    """Coins come and go; a purse never owes, because `may_take` looks before one goes."""

    steps = 12

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.coins = 0

    def may_take(self, coins: int) -> bool:
        return coins <= self.coins

    def act(self) -> None:
        coins = self.random.randint(1, 9)
        if self.random.random() < 0.8:
            self.coins += coins
            self.told.append(f"+{coins}")
        elif self.may_take(coins):
            self.coins -= coins
            self.counts["taken"] += coins
            self.told.append(f"-{coins}")

    def check(self) -> None:
        if self.coins < 0:
            raise WrongOutcome(f"the purse owes {-self.coins}")


@contextmanager
def careless() -> Iterator[None]:
    with patch.object(Purse, "may_take", lambda *_: True):
        yield


EXPLORER = Explorer(
    "tests.unit.test_explorer",
    Purse,
    lambda total: f"{total['taken']} coins taken",
    {"none": careless, "careless": careless},
    hash_seeds=3,
)


@pytest.fixture(autouse=True)
def logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logging.disable", lambda _level: None)


def test_a_seed_plays_the_same_story_again() -> None:
    assert play(Purse, 5) == play(Purse, 5)
    assert play(Purse, 5).told != play(Purse, 6).told


def test_what_goes_wrong_is_shortened_to_the_events_that_it_takes_and_they_choose_as_before() -> None:
    with careless():
        seed = EXPLORER.first_bad("careless", range(1, 500))
        assert seed is not None
        found = play(Purse, seed)
        short = shortened(Purse, found)
    assert len(short.told) == 1 < len(found.told)
    assert short.told[0] == found.told[-1]
    assert str(short) == f"seed {seed}: the purse owes {short.told[0][1:]}\n  {short.told[0]}"


def test_an_error_of_a_story_names_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(Purse, "may_take")
    with pytest.raises(AttributeError) as error:
        EXPLORER.total(range(50))
    assert error.value.__notes__ == ["in the story of seed 0"]


def test_a_run_of_no_story_ends_well(tmp_path: Path) -> None:
    assert EXPLORER.main(["--histories", "0", "--out", str(tmp_path / "done.jsonl")]) == 0


def test_totals_stop_at_the_first_story_that_goes_wrong() -> None:
    assert EXPLORER.total(range(50))["taken"] > 50
    with careless(), pytest.raises(WrongOutcome, match="seed 2: the purse owes 5"):
        EXPLORER.total(range(1, 500))


@pytest.mark.parametrize(
    ("arguments", "status", "last"),
    [
        (["--mutation", "careless", "--seeds", "500"], 0, "caught at seed "),
        (["--mutation", "careless", "--seeds", "0"], 1, "not caught"),
        (["--mutation", "gravity"], 2, "unknown mutation gravity; choose one of none, careless"),
    ],
)
def test_a_run_without_a_safeguard_says_whether_it_was_noticed(
    arguments: list[str], status: int, last: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert EXPLORER.main(arguments) == status
    assert capsys.readouterr().out.splitlines()[-1].startswith(last)


def test_a_run_continues_where_it_was_stopped_and_the_next_one_plays_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "done.jsonl"
    out.write_text(json.dumps({"first": 1, "hash_seed": "0", "messages": [], "histories": 100, "taken": 10**6}) + "\n")
    assert EXPLORER.main(["--histories", "103", "--out", str(out)]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("103 histories, 0 wrong: 10000")
    assert not out.exists()


def test_a_story_that_goes_wrong_is_printed_and_fails_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "done.jsonl"
    bad = {"first": 1, "hash_seed": "2", "messages": ["seed 7: the purse owes 3\n  -3"], "histories": 100, "bad": 1}
    out.write_text(json.dumps(bad) + "\n")
    assert EXPLORER.main(["--histories", "100", "--out", str(out)]) == 1
    printed = capsys.readouterr().out
    assert "BAD seed 7: the purse owes 3\n  -3\n  (PYTHONHASHSEED=2)" in printed
    assert "100 histories, 1 wrong" in printed


if __name__ == "__main__":
    sys.exit(EXPLORER.main(sys.argv[1:]))
