"""What cannot be read and holds purges back, as text for people and as JSON."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from delegation.cli.screens import Whole, plain
from delegation.references.blocking.model import Blocking, Exemption, Subject
from delegation.references.model import UNANSWERED_PASSES, CatalogPass
from delegation.timestamps import isoformat
from polaris_common.errors import counted

MOST_SHOWN = 50
_LONGEST_PROBLEM = 400


@dataclass(frozen=True, slots=True)
class BlockingRow:
    """Something that cannot be read, and the exemption that holds for it."""

    blocking: Blocking
    exemption: Exemption | None

    def document(self) -> dict[str, Any]:
        found, exemption = self.blocking, self.exemption
        code, _, text = found.problem.partition(": ")
        return {
            "what": name_of(found.subject),
            "kind": kind_of(found.subject),
            "error_code": code,
            "problem": text,
            "since": None if found.since is None else isoformat(found.since),
            "table_uuid": found.table_uuid or None,
            "metadata_location": found.metadata_location,
            "holds_back": "nothing" if found.is_doubted else "overlapping" if found.narrow else "all",
            "unreadable_files": None if found.unread is None else len(found.unread),
            "passes_without_answer": len(found.unanswered) or None,
            "exemption": None if exemption is None else exemption_document(exemption),
        }


def exemption_document(exemption: Exemption) -> dict[str, Any]:
    return {
        "what": name_of(exemption.subject),
        "kind": kind_of(exemption.subject),
        "table_uuid": exemption.table_uuid or None,
        "metadata_location": exemption.metadata_location,
        "unreadable_files": None if exemption.unread is None else len(exemption.unread),
        "why": exemption.why,
        "by": exemption.by,
        "at": isoformat(exemption.at),
        "until": isoformat(exemption.until),
    }


def kind_of(subject: Subject) -> str:
    if subject.name is not None:
        return "table"
    return "namespace" if subject.namespace else "catalog"


def name_of(subject: Subject) -> str:
    """Return a subject's name as the commands read it: a part with a dot is between backquotes."""
    parts = (subject.catalog, *subject.namespace, *([] if subject.name is None else [subject.name]))
    return ".".join(f"`{part}`" if "." in part else part for part in parts)


def exempt_words(subject: Subject) -> str:
    """Return the command that exempts a subject; a shell reads backquotes only between quotes."""
    name = plain(name_of(subject))
    quoted = f"'{name}'" if set(name) & set("` '\"$&;()<>|*?") else name
    listed = "" if subject.name is not None else " --list"
    return f"delegation references exempt {quoted}{listed} --why …"


def blocking_screens(
    catalog: str, found: Sequence[BlockingRow], waiting: int, now: datetime, state: CatalogPass
) -> Iterator[RenderableType]:
    if state.problem is not None and state.problem_since is not None:
        since = f"{_time(state.problem_since)} ({_age(now - state.problem_since)})"
        yield f"No pass over {plain(catalog)} has been completed since {since}:"
        yield Whole(plain(state.problem), indent=2)
    elif not found:
        yield f"Everything in {plain(catalog)} could be read; no purge is held back."
        return
    for one in found[:MOST_SHOWN]:
        heading = Text(plain(name_of(one.blocking.subject)), style="bold")
        if one.blocking.subject.name is None:
            heading.append(f" (the {kind_of(one.blocking.subject)} cannot be listed)", style="")
        yield Whole(heading)
        yield from (Whole(line, indent=2) for line in _lines(one, now))
    if len(found) > MOST_SHOWN:
        yield f"{len(found) - MOST_SHOWN:,} more; --json lists all."
    if waiting:
        yield "\n1 purge waits." if waiting == 1 else f"\n{waiting:,} purges wait."


def _lines(one: BlockingRow, now: datetime) -> Iterator[str | Text]:
    blocking, exemption = one.blocking, one.exemption
    problem = plain(blocking.problem)
    problem = problem if len(problem) <= _LONGEST_PROBLEM else problem[:_LONGEST_PROBLEM] + "…"
    since = "" if blocking.since is None else f" since {_time(blocking.since)} ({_age(now - blocking.since)})"
    yield f"unreadable{since}: {problem}"
    if exemption is not None:
        yield f"exempt until {_time(exemption.until)} by {plain(exemption.by)}: {plain(exemption.why)}"
        return
    if blocking.is_doubted:
        passes = f"{len(blocking.unanswered)} of {UNANSWERED_PASSES} passes in which others had an answer"
        yield f"no answer in {passes}; no pass is completed until it has one, or counts as unreadable"
        return
    narrow = "only purges of tables whose storage it overlaps"
    yield f"holds back {narrow if blocking.narrow else 'every purge that checks this catalog'}"
    words = "repair it, or drop it from the catalog: it was never read, so no exemption covers it"
    yield Text(words if blocking.was_never_read else exempt_words(blocking.subject), "dim")


def _time(moment: datetime) -> str:
    return f"{moment.astimezone():%Y-%m-%d %H:%M}"


def _age(age: Any) -> str:
    minutes = int(age.total_seconds() // 60)
    if minutes < 120:
        return counted(max(minutes, 0), "minute")
    return f"{minutes // 60} hours" if minutes < 48 * 60 else f"{minutes // 1440} days"


def exempted_screens(exemption: Exemption, released: int | None) -> Iterator[str]:
    name = plain(name_of(exemption.subject))
    files = exemption.unread
    change = "it changes" if files is None else f"more than {counted(len(files), 'file')} of it cannot be read"
    yield f"{name} is exempt until {_time(exemption.until)}, or until {change} or all can be read."
    noun, word = ("purge", "runs") if released == 1 else ("purges", "run")
    runs = {None: "Purges that wait for it run within the hour.", 0: "No purge waited for it."}
    yield runs.get(released) or f"{released:,} {noun} waited for it and {word} within a minute."


def found_in(documents: Sequence[Mapping[str, Any]], catalog: str, waiting: int, state: CatalogPass) -> dict[str, Any]:
    complete, since = state.complete_as_of, state.problem_since
    last = {
        "complete_as_of": None if complete is None else isoformat(complete),
        "problem": state.problem,
        "problem_since": None if since is None else isoformat(since),
    }
    return {"catalog": catalog, "blocking": list(documents), "purges_waiting": waiting, "pass": last}
