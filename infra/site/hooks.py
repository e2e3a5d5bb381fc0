"""What mkdocs calls while it builds the site: it adds the pages of sources.py, and leads links to their places.

mkdocs runs in an environment of its own, which has nothing of this project but its text; so only that is imported.
"""

import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "build" / "site-sources"
ABOUT = "about.json"
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(((?:\.\./)+[^)\s#]*|java)(#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    for title, entries in _about()["navigation"].items():
        section = next(part for part in config["nav"] if title in _titles(part))
        _replace(section, title, entries)
    return config


def _about() -> dict[str, Any]:
    about: dict[str, Any] = json.loads((SOURCES / ABOUT).read_text(encoding="utf-8"))
    return about


def _titles(part: dict[str, Any]) -> set[str]:
    return {title for each in next(iter(part.values())) if isinstance(each, dict) for title in each}


def _replace(part: dict[str, Any], title: str, entries: list[Any]) -> None:
    inside = next(iter(part.values()))
    inside[next(at for at, each in enumerate(inside) if isinstance(each, dict) and title in each)] = {title: entries}


def on_files(files: Any, config: Any) -> Any:
    for path in sorted(SOURCES.rglob("*")):
        if path.is_file() and path.name != ABOUT:
            files.append(File.generated(config, str(path.relative_to(SOURCES)), abs_src_path=str(path)))
    return files


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Load the script that lets a page from disk search from the site itself."""
    here = posixpath.relpath("assets/iframe-worker.js", posixpath.dirname(page.file.dest_uri) or ".")
    return output.replace("https://unpkg.com/iframe-worker/shim", here)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links out of docs/ to the page that the site has instead; name a file without a page."""
    folder, moved = posixpath.dirname(page.file.src_uri), _about()["moved"]

    def led(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", folder, match[2]))
        if target.startswith("docs/") and target != "docs/java":
            return match[0]
        place = moved.get(target)
        if place is None:
            return f"{match[1]} (`{target}`)"
        return f"[{match[1]}]({posixpath.relpath(place, folder or '.')}{match[3] or ''})"

    return _LINK.sub(led, markdown)
