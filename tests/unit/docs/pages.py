"""The pages of the documentation as data: their headings, their links, and how many clicks lie between two of them."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from tests.paths import DOCS, ROOT

_FENCE: Final = re.compile(r"^ *(```|~~~).*?^ *\1", re.DOTALL | re.MULTILINE)
_CODE: Final = re.compile(r"`[^`\n]+`")
_LINK: Final = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_PICTURE: Final = re.compile(r"!\[[^\]]*\]\(([^)\s]+)\)|<img[^>]*src=\"([^\"]+)\"")
_HEADING: Final = re.compile(r"^#{1,6} +(.*)$", re.MULTILINE)
_ANCHOR: Final = re.compile(r"<a id=\"([^\"]+)\">")


def pages() -> list[Path]:
    """Every page that a person reads, the first page first."""
    return [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub and the site make it."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")


@dataclass(frozen=True)
class Link:
    """A link of a page to a file of the repository, and the anchor there."""

    page: Path
    target: Path
    anchor: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)} → {self.target}#{self.anchor}"


def prose(page: Path) -> str:
    """The text of a page without its blocks of code."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def links(page: Path) -> Iterator[Link]:
    """The links of a page that stay in the repository."""
    for found in _LINK.findall(_CODE.sub("", prose(page))):
        if not re.match(r"[a-z]+:", found):
            path, _, anchor = unquote(found).partition("#")
            yield Link(page, (page.parent / path).resolve() if path else page, anchor)


def pictures(page: Path) -> Iterator[Path]:
    """The pictures of a page that are files of the repository."""
    for found in _PICTURE.findall(prose(page)):
        name = found[0] or found[1]
        if not name.startswith("http"):
            yield (page.parent / name).resolve()


def anchors(page: Path) -> set[str]:
    """The anchors of a page: its headings, the second of a name with a number, and those that it sets itself."""
    text, seen, found = prose(page), dict[str, int](), set[str]()
    for heading in _HEADING.findall(text):
        name = slug(heading)
        found.add(f"{name}-{seen[name]}" if name in seen else name)
        seen[name] = seen.get(name, 0) + 1
    return found | set(_ANCHOR.findall(text))


def section(page: Path, anchor: str) -> str:
    """The text of a page from a heading to the next one of its depth; empty if there is no such heading."""
    found: list[str] = []
    depth = 0
    for line in page.read_text(encoding="utf-8").splitlines():
        hashes = len(line) - len(line.lstrip("#")) if re.match(r"#{1,6} ", line) else 0
        if depth and 0 < hashes <= depth:
            break
        if hashes and slug(line[hashes:]) == anchor:
            depth = hashes
        if depth:
            found.append(line)
    return "\n".join(found)


def clicks(start: Path) -> Mapping[Path, int]:
    """How many clicks each page is away from one."""
    found, edge = {start: 0}, [start]
    while edge:
        page = edge.pop(0)
        for link in links(page):
            target = link.target / "README.md" if link.target.is_dir() else link.target
            if target.suffix == ".md" and target.is_file() and target not in found:
                found[target] = found[page] + 1
                edge.append(target)
    return found
