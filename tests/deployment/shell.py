"""The commands of a text that is pasted into a shell, those within others too; nothing is run."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

VALUE: Final = "value"
"""The word instead of a variable and of the output of an inner command."""
_NAME: Final = re.compile(r"\w+")
_ASSIGNED: Final = re.compile(r"^\w+=")
_SKIPPED: Final = re.compile(r"\\\n|\d?[<>]{1,2}&?\s*[\w./$-]+")
"""A line that is continued, or where input or output is redirected."""
_SEPARATORS: Final = "|;&\n"
_OPENING: Final = {"{", "}", "!", "do", "done", "until"}


@dataclass(slots=True)
class ShellReader:
    """Reads a text once (POSIX.1-2017, "Shell Command Language"): words, quotes, `$NAME`, `${…}` and `$(…)`.

    `found` are the commands, an inner one before the command that has it.
    """

    text: str
    at: int = 0
    found: list[list[str]] = field(default_factory=list)

    def read(self, end: str = "") -> None:
        """Read to the end of the text, or of the inner command that `end` closes; raises ValueError for a quote."""
        words: list[str] = []
        word: str | None = None
        while self.at < len(self.text) and self.text[self.at] != end:
            char = self.text[self.at]
            skipped = _SKIPPED.match(self.text, self.at) if word is None else None
            if skipped:
                self.at = skipped.end()
            elif char in _SEPARATORS or char.isspace() or (char == "#" and word is None):
                words += [] if word is None else [word]
                word = None
                if char in _SEPARATORS:
                    words = self._ended(words)
                self.at = self._end_of_line() if char == "#" else self.at + 1
            else:
                word = (word or "") + self._part()
        self._ended([*words, *([] if word is None else [word])])
        self.at += 1

    def _ended(self, words: list[str]) -> list[str]:
        """Keep a command without the variables and the name of the function before it; return no words."""
        while words and (words[0] in _OPENING or words[0].endswith("()") or _ASSIGNED.match(words[0])):
            words = words[1:]
        if words:
            self.found.append(words)
        return []

    def _end_of_line(self) -> int:
        end = self.text.find("\n", self.at)
        return len(self.text) if end < 0 else end

    def _part(self) -> str:
        """Return the next part of a word."""
        char = self.text[self.at]
        self.at += 1
        if char == "'":
            return self._until("'")
        if char == '"':
            return self._quoted()
        if char == "$":
            return self._expanded()
        if char == "\\":
            self.at += 1
            return self.text[self.at - 1].replace("\n", "")
        return char

    def _until(self, end: str) -> str:
        before, found, _ = self.text[self.at :].partition(end)
        if not found:
            raise ValueError(f"nothing closes with {end}: {self.text}")
        self.at += len(before) + len(end)
        return before

    def _quoted(self) -> str:
        found = ""
        while self.at < len(self.text) and self.text[self.at] != '"':
            self.at += 1
            char = self.text[self.at - 1]
            found += self._expanded() if char == "$" else char
        self.at += 1
        if self.at > len(self.text):
            raise ValueError(f'nothing closes with ": {self.text}')
        return found

    def _expanded(self) -> str:
        if self.text.startswith("(", self.at):
            self.at += 1
            self.read(")")
        elif self.text.startswith("{", self.at):
            self._until("}")
        elif name := _NAME.match(self.text, self.at):
            self.at = name.end()
        else:
            return "$"
        return VALUE


def simple_commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each command; raises ValueError for a quote that nothing closes."""
    reader = ShellReader(text)
    reader.read()
    yield from reader.found
