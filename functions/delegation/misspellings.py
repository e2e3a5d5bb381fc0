"""Finds the known name that a misspelled one probably means."""

from collections.abc import Iterable
from typing import Final

_SEPARATORS: Final = str.maketrans("", "", "-_. ")
_MOST_LETTERS: Final = 2


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: the nearest known one, or all if none is near."""
    from difflib import get_close_matches  # noqa: PLC0415 - a process that meets no such name needs none of it

    names = {_plain(name): name for name in sorted(known)}
    near = get_close_matches(_plain(word), names, n=1)
    return f"did you mean {names[near[0]]}?" if near else f"known: {', '.join(names.values()) or 'none'}"


def misspelled(word: str, known: Iterable[str]) -> str | None:
    """Return the known name within two letters of a word, ignoring case and separators."""
    plain = _plain(word)
    distances = {name: _distance(plain, _plain(name)) for name in known}
    nearest = min(distances, key=distances.__getitem__, default=None)
    return nearest if nearest is not None and distances[nearest] <= _MOST_LETTERS else None


def _plain(name: str) -> str:
    return name.casefold().translate(_SEPARATORS)


def _distance(first: str, second: str) -> int:
    """Return how many letters are added, removed or replaced (Levenshtein); a large number if more than two."""
    if abs(len(first) - len(second)) > _MOST_LETTERS:
        return _MOST_LETTERS + 1
    row = list(range(len(second) + 1))
    for number, letter in enumerate(first, start=1):
        before, row[0] = row[0], number
        for at, other in enumerate(second, start=1):
            before, row[at] = row[at], min(row[at] + 1, row[at - 1] + 1, before + (letter != other))
    return row[-1]
