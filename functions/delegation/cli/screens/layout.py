"""Tables and fields whose words stay whole: names, ids and addresses are copied, and a broken one is none.

Print them with `crop=False`: what is longer than the terminal has a line of its own, which the terminal wraps, so
that a copy has no line break.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table
from rich.text import Text

GAP: Final = 2
Cell = str | Text


def text_of(cell: Cell) -> Text:
    """Return a cell as text without markup."""
    return cell if isinstance(cell, Text) else Text(cell)


def unbroken(text: Text) -> Text:
    """Return a text that is printed as it is, however narrow the terminal."""
    made = text.copy()
    made.no_wrap, made.overflow = True, "ignore"
    return made


def longest_word(text: Text) -> int:
    """Return the columns that the longest word of a text takes."""
    return max((cell_len(word) for word in text.plain.split()), default=0)


def longest_line(text: Text) -> int:
    """Return the columns that the longest line of a text takes."""
    return max((cell_len(line) for line in text.plain.splitlines()), default=0)


def fitting(natural: Sequence[int], least: Sequence[int], room: int) -> list[int] | None:
    """Return a width for each column within `room`, the widest narrowed first; None if words would be broken."""
    widths = list(natural)
    while (excess := sum(widths) + GAP * (len(widths) - 1) - room) > 0:
        wrappable = [place for place, width in enumerate(widths) if width > least[place]]
        if not wrappable:
            return None
        widest = max(wrappable, key=lambda place: widths[place])
        widths[widest] = max(least[widest], widths[widest] - excess)
    return widths


class Whole:
    """A text that is wrapped between words; lines with a word longer than the terminal are printed as they are."""

    def __init__(self, text: Cell, *, indent: int = 0) -> None:
        self._text = text_of(text)
        self._indent = indent

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        margin, room = " " * self._indent, options.max_width - self._indent
        for line in self._text.split("\n"):
            if longest_word(line) > room:
                yield unbroken(Text.assemble(margin, line))
                continue
            for part in line.wrap(console, room):
                part.rstrip()
                yield Text.assemble(margin, part)


class LabelledLines:
    """Labels with their values; a value with a word that does not fit beside its label is below it."""

    def __init__(self, rows: Iterable[tuple[Cell, Cell]], *, indent: int = 0, label_width: int = 0) -> None:
        self._rows = [(text_of(label), text_of(value)) for label, value in rows]
        self._indent = indent
        self._label_width = label_width

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        width = max((self._label_width, *(label.cell_len for label, _ in self._rows)))
        room = options.max_width - self._indent - width - GAP
        margin = " " * self._indent
        for label, value in self._rows:
            shown = label.copy() if label.style or label.spans else Text(label.plain, "dim")
            if longest_word(value) > room:
                yield Text.assemble(margin, shown)
                for line in value.split("\n"):
                    yield unbroken(Text.assemble(margin, "  ", line))
                continue
            for number, line in enumerate(value.wrap(console, room)):
                line.rstrip()
                first = shown if number == 0 else Text()
                yield Text.assemble(margin, first, " " * (width - first.cell_len + GAP), line)


class Rows:
    """A table without lines; where a word of it would be broken, each row is a block of its fields.

    `otherwise` is drawn in place of those blocks.
    """

    def __init__(self, *header: str, right: Collection[str] = (), otherwise: RenderableType | None = None) -> None:
        self._header = header
        self._right = right
        self._otherwise = otherwise
        self._rows: list[tuple[Text, ...]] = []

    def add(self, *cells: Cell) -> None:
        """Add a row, with a cell for each column."""
        self._rows.append(tuple(map(text_of, cells)))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        columns = [[Text(name), *column] for name, *column in zip(self._header, *self._rows, strict=True)]
        natural = [max(map(longest_line, column)) for column in columns]
        least = [max(map(longest_word, column)) for column in columns]
        widths = fitting(natural, least, options.max_width)
        if widths is None:
            yield from self._blocks() if self._otherwise is None else (self._otherwise,)
            return
        table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, GAP, 0, 0))
        for name, width in zip(self._header, widths, strict=True):
            justify = "right" if name in self._right else "left"
            table.add_column(name, width=width, overflow="fold", justify=justify)  # type: ignore[arg-type]
        for row in self._rows:
            table.add_row(*row)
        yield table

    def _blocks(self) -> Iterator[RenderableType]:
        for row in self._rows:
            first, *rest = row
            yield unbroken(first if first.plain else Text("-"))
            named = zip(self._header[1:], rest, strict=True)
            yield LabelledLines([(name, value) for name, value in named if value.plain], indent=2)
