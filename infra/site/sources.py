"""Pages of the site that are no files of docs/: the first page, the API, the changelog, the reference from docstrings.

`python -m infra.site.sources FOLDER` writes them; mkdocs, which has an environment of its own, adds the folder's files
to those of docs/ (hooks.py).
"""

import json
import posixpath
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from infra.environment.context import ROOT
from infra.package import description

REFERENCE: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "client": ("The clients", ("delegation.client", "delegation.client.operations")),
    "authoring": (
        "Behaviors of your own",
        ("delegation.tasks.authoring", "delegation.tasks.work.author_context", "delegation.tasks.testing"),
    ),
    "mutations": ("Mutations at most once", ("delegation.idempotency.mutations",)),
    "persistence": (
        "Persistence",
        ("polaris_persistence.catalogs.process", "polaris_persistence.commits.committer"),
    ),
}
"""The pages of the reference: a title, and the modules whose docstrings they show."""
MOVED: Final[Mapping[str, str]] = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "tests/fixtures/README.md": "fixtures.md",
}
"""Files outside docs/ that are pages of the site."""
_LINK: Final = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#]*)(#[^)\s]*)?\)")
_PICTURE: Final = re.compile(r"(!\[[^\]]*\]\()docs/([^)\s]+\))")
"""A picture in a page outside docs/, whose path the site has without it."""
_BODY: Final = re.compile(r"<body>\n(.*)\n</body>", re.DOTALL)


def sources() -> dict[str, str]:
    """Return the text of each page and file by its path in the site."""
    pages = {page: on_site((ROOT / name).read_text(encoding="utf-8"), name) for name, page in MOVED.items()}
    served = description.files()
    pages["openapi.json"] = served["openapi.json"]
    pages["rest-api.md"] = rest_api(served["docs.html"])
    return pages | {f"reference/{name}.md": reference(*about) for name, about in REFERENCE.items()}


def on_site(text: str, name: str) -> str:
    """Return a page with its links as the site has them; `name` is its path in the repository.

    What the site does not have, such as a module, is named without a link.
    """

    def moved(match: re.Match[str]) -> str:
        label, path, anchor = match[1], match[2], match[3] or ""
        if not path or re.match(r"[a-z]+:", path):
            return match[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(name), path))
        place = MOVED.get(target) or (target.removeprefix("docs/") if target.startswith("docs/") else None)
        if place is None or ((ROOT / target).is_dir() and not (ROOT / target / "README.md").is_file()):
            return f"{label} (`{target}`)"
        place = f"{place}/README.md" if (ROOT / target).is_dir() else place
        here = posixpath.dirname(MOVED.get(name, name.removeprefix("docs/")))
        return f"[{label}]({posixpath.relpath(place, here or '.')}{anchor})"

    return _PICTURE.sub(r"\1\2", _LINK.sub(moved, text))


def rest_api(html: str) -> str:
    """Return the page of the API with the site's frame around it."""
    body = _BODY.search(html)
    if body is None:
        raise ValueError("the page of the API has no body")
    text = re.sub(r"<h1>(.*?)</h1>\n", "", body[1])
    return f'---\nhide: [toc]\ntitle: REST API\n---\n\n# REST API\n\n<div class="rest-api">\n{text}\n</div>\n'


def reference(title: str, modules: tuple[str, ...]) -> str:
    """Return a page that mkdocstrings fills from docstrings."""
    return f"# {title}\n\n" + "\n".join(f"::: {module}\n" for module in modules)


def navigation() -> dict[str, list[object]]:
    """Return the runbook's pages, which are many, and the reference, for the menu of the site."""
    runbook = sorted(path.name for path in (ROOT / "docs" / "runbook").glob("*.md") if path.name != "README.md")
    return {
        "Runbook": ["runbook/README.md", *(f"runbook/{name}" for name in runbook)],
        "From docstrings": [{title: f"reference/{name}.md"} for name, (title, _) in REFERENCE.items()],
    }


def main(folder: Path) -> None:
    for name, text in sources().items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
    about = {"navigation": navigation(), "moved": MOVED}
    (folder / "about.json").write_text(json.dumps(about), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
