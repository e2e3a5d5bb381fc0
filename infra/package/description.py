"""The API's description as it is served, openapi.json and docs.html: built into the package, and in no commit.

Made from docs/openapi.yaml and docs/errors.md alone, so that setup.py can build both with PyYAML and nothing else of
the service's. The page has no script and loads nothing: the known renderers are scripts of a megabyte, which such a
page would have to contain.
"""

import functools
import html
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCE: Final = ROOT / "docs" / "openapi.yaml"
ERRORS: Final = ROOT / "docs" / "errors.md"
PLACE: Final = Path("delegation", "edge", "api")
"""The folder of both files in the package."""
_METHODS: Final = ("get", "post", "put", "patch", "delete")
_CODE: Final = re.compile(r"`([^`]+)`")
_CHAPTER: Final = re.compile(r"^## (.+)$")
_ROW: Final = re.compile(r'^\| <a id="(\w+)"></a>`\w+` (\d+)\S* \| (.*?) \| (.*?) \|$')
_ROUTINE: Final = "A task needs nothing; repeat a request after Retry-After."
_STYLE: Final = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --accent: #2563eb; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 62rem; padding: 1.5rem; }
h1 { margin-bottom: 0; } h2 { border-bottom: 1px solid var(--line); margin-top: 3rem; }
a { color: var(--accent); text-decoration: none; } a:hover { text-decoration: underline; }
code { background: var(--soft); border-radius: 3px; font-size: 90%; padding: 0 .25em; overflow-wrap: anywhere; }
td:first-child code { white-space: nowrap; overflow-wrap: normal; }
nav { columns: 3 14rem; } nav a { display: block; }
section { border: 1px solid var(--line); border-radius: 8px; margin: 1rem 0; padding: 0 1rem 1rem; }
section h3 { margin: 1rem 0 .25rem; } .verb { color: var(--accent); font-weight: 700; }
table { border-collapse: collapse; width: 100%; } td, th { border-top: 1px solid var(--line); padding: .3rem .5rem;
text-align: left; vertical-align: top; } tr:target, section:target { background: #2563eb22; }
.wide { overflow-x: auto; }
"""


def files() -> dict[str, str]:
    spec = document()
    return {"openapi.json": openapi_json(spec), "docs.html": page(spec)}


def build(packages: Path) -> None:
    """Write both files into the package below a folder; each is whole at any moment."""
    folder = packages / PLACE
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        with tempfile.NamedTemporaryFile("w", dir=folder, delete=False, encoding="utf-8") as made:
            made.write(text)
        Path(made.name).chmod(0o644)
        os.replace(made.name, folder / name)  # noqa: PTH105 - atomic, also beside another process that builds


def ensure() -> None:
    """Build both files for this checkout, unless they are newer than all that they are made from."""
    built = [ROOT / "functions" / PLACE / name for name in ("openapi.json", "docs.html")]
    newest = max(path.stat().st_mtime_ns for path in (SOURCE, ERRORS, Path(__file__)))
    if not all(path.exists() and path.stat().st_mtime_ns > newest for path in built):
        build(ROOT / "functions")


def document() -> dict[str, Any]:
    description: dict[str, Any] = yaml.safe_load(SOURCE.read_text(encoding="utf-8"))
    return description


@functools.cache
def codes() -> Mapping[str, Mapping[str, tuple[str, str, str]]]:
    """Return status, meaning and action of each code of docs/errors.md, by chapter and name."""
    by_chapter: dict[str, dict[str, tuple[str, str, str]]] = {}
    chapter = ""
    for line in ERRORS.read_text(encoding="utf-8").splitlines():
        if title := _CHAPTER.match(line):
            chapter = title[1]
        elif row := _ROW.match(line):
            by_chapter.setdefault(chapter, {})[row[1]] = (row[2], row[3], row[4] or _ROUTINE)
    return by_chapter


def openapi_json(spec: Mapping[str, Any]) -> str:
    """Return the document as JSON, a member or an entry on each line, without indentation."""
    return json.dumps(spec, ensure_ascii=False, separators=(",", ":"), indent=0) + "\n"


def page(spec: Mapping[str, Any]) -> str:
    body = "\n".join(part for part in (*_head(spec), *_operations(spec), *_schemas(spec), *_codes(codes())) if part)
    title = html.escape(spec["info"]["title"])
    head = f'<meta charset="utf-8"><title>{title}</title><meta name="viewport" content="width=device-width">'
    start = f'<!doctype html>\n<html lang="en"><head>{head}<style>{_STYLE}</style></head>'
    return f"{start}\n<body>\n{body}\n</body></html>\n"


def _head(spec: Mapping[str, Any]) -> Iterator[str]:
    info = spec["info"]
    yield f"<h1>{_text(info['title'])}</h1>"
    yield f"<p>{_text(info['summary'])} Version {_text(info['version'])},"
    yield 'as <a href="openapi.json">OpenAPI 3.1</a>.</p>'
    yield _paragraphs(info["description"])
    yield "<nav>"
    for _, _, operation in _each_operation(spec):
        yield f'<a href="#{operation["operationId"]}">{_text(operation["summary"])}</a>'
    yield '<a href="#schemas">Schemas</a>'
    yield '<a href="#codes">Error codes</a></nav>'


def _operations(spec: Mapping[str, Any]) -> Iterator[str]:
    yield "<h2>Operations</h2>"
    for path, method, operation in _each_operation(spec):
        yield f'<section id="{operation["operationId"]}"><h3>{_text(operation["summary"])}</h3>'
        yield f'<p><span class="verb">{method.upper()}</span> <code>{_text(path)}</code></p>'
        yield _paragraphs(operation.get("description", ""))
        parameters = [_resolved(spec, each) for each in operation.get("parameters", [])]
        yield _table(
            ("parameter", "in", "what it is"),
            ((f"<code>{each['name']}</code>", each["in"], _text(each.get("description", ""))) for each in parameters),
        )
        if "requestBody" in operation:
            yield f"<p>Body: {_type(_schema_of(operation['requestBody']))}</p>"
        answers = ((status, _resolved(spec, each)) for status, each in operation["responses"].items())
        yield _table(
            ("status", "answer", "meaning"),
            ((status, _type(_schema_of(each)), _text(each["description"])) for status, each in answers),
        )
        yield "</section>"


def _schemas(spec: Mapping[str, Any]) -> Iterator[str]:
    yield '<h2 id="schemas">Schemas</h2>'
    for name, schema in spec["components"]["schemas"].items():
        yield f'<section id="schema-{name}"><h3>{name}</h3>'
        yield _paragraphs(schema.get("description", ""))
        required = set(schema.get("required", []))
        members = schema.get("properties", {})
        if not members:
            yield f"<p>{_type(schema)}</p>"
        yield _table(
            ("member", "type", "what it is"),
            (
                (f"<code>{_text(member)}</code>{' *' if member in required else ''}", _type(each), _about(each))
                for member, each in members.items()
            ),
        )
        yield "</section>"
    yield "<p>* always present, or required in a request.</p>"


def _codes(known: Mapping[str, Mapping[str, tuple[str, str, str]]]) -> Iterator[str]:
    yield '<h2 id="codes">Error codes</h2>'
    for chapter, entries in known.items():
        yield f"<h3>{_text(chapter)}</h3>"
        yield '<div class="wide"><table><tr><th>code<th>status<th>meaning<th>what to do</tr>'
        for name, (status, meaning, action) in entries.items():
            cells = (f"<code>{name}</code>", status, _text(meaning), _text(action))
            yield f'<tr id="{name}">' + "".join(f"<td>{cell}" for cell in cells)
        yield "</table></div>"


def _each_operation(spec: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for path, item in spec["paths"].items():
        for method in _METHODS:
            if method in item:
                yield path, method, item[method]


def _resolved(spec: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" not in schema:
        return schema
    target: Any = spec
    for step in schema["$ref"].removeprefix("#/").split("/"):
        target = target[step]
    resolved: Mapping[str, Any] = target
    return resolved


def _schema_of(holder: Mapping[str, Any]) -> Mapping[str, Any]:
    for content in holder.get("content", {}).values():
        schema: Mapping[str, Any] = content["schema"]
        return schema
    return {}


def _type(schema: Mapping[str, Any]) -> str:
    """Return a schema's type as HTML, with links to named schemas."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f'<a href="#schema-{name}">{name}</a>'
    if "oneOf" in schema and "type" not in schema:
        return " or ".join(_type(each) for each in schema["oneOf"])
    kind = schema.get("type", "any")
    words = " or ".join(kind) if isinstance(kind, list) else kind
    if "array" in words and "items" in schema:
        words = f"array of {_type(schema['items'])}"
    if "enum" in schema:
        words += ": " + ", ".join(f"<code>{_text(str(each))}</code>" for each in schema["enum"])
    return words + (f" ({schema['format']})" if "format" in schema else "")


def _about(schema: Mapping[str, Any]) -> str:
    limits = [f"{word} {schema[key]}" for key, word in _LIMITS.items() if key in schema]
    return _text(schema.get("description", "")) + (f" <small>{'; '.join(limits)}</small>" if limits else "")


_LIMITS: Final = {
    "minLength": "characters at least",
    "maxLength": "characters at most",
    "minimum": "at least",
    "maximum": "at most",
    "minItems": "items at least",
    "maxItems": "items at most",
    "maxProperties": "members at most",
}


def _table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    lines = ["<tr>" + "".join(f"<td>{cell}" for cell in row) + "</tr>" for row in rows]
    if not lines:
        return ""
    first = f'<div class="wide"><table><tr>{"".join(f"<th>{each}" for each in head)}</tr>'
    return "\n".join((first, *lines, "</table></div>"))


def _paragraphs(text: str) -> str:
    return "\n".join(f"<p>{_text(part)}</p>" for part in text.split("\n\n") if part.strip())


def _text(text: str) -> str:
    """Return text as HTML, with quoted code, and links from error codes to their lines."""
    return _CODE.sub(_quoted, html.escape(" ".join(text.split())))


def _quoted(match: re.Match[str]) -> str:
    word = f"<code>{match[1]}</code>"
    return f'<a href="#{match[1]}">{word}</a>' if any(match[1] in entries for entries in codes().values()) else word
