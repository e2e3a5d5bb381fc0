"""Numbers with their nouns, for messages: 1 task, 2 tasks, 1,200 tasks."""


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with the noun in its form; `plural` is of a noun that does not just get an s."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"
