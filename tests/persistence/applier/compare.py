"""What the applier does with a sequence of commits, and how it differs from what Iceberg Java answered."""

import collections
import copy
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from polaris_persistence.errors import IcebergUpdateError
from polaris_persistence.iceberg.updates.tables import updated_table
from polaris_persistence.iceberg.updates.views import updated_view

Json = dict[str, Any]

NEW_UUID = "00000000-0000-4000-8000-000000000000"


class Outcome(NamedTuple):
    """What became of a commit: the document after it, or the reason of the refusal."""

    ok: bool
    document: Json | None
    reason: str | None = None


def outcome_of(kind: str, document: Json | None, commit: Json, now_ms: int) -> Outcome:
    """Return what the applier does with a commit."""
    requirements, updates = commit["requirements"], commit["updates"]
    before = copy.deepcopy(document)
    try:
        if kind == "view":
            after = updated_view(document, requirements, updates, now_ms=now_ms, new_uuid=NEW_UUID)
        else:
            file = commit["file"] if document is not None else None
            after = updated_table(document, requirements, updates, now_ms=now_ms, previous_file=file, new_uuid=NEW_UUID)
    except IcebergUpdateError as error:
        return Outcome(False, None, error.reason)
    finally:
        assert document == before
    return Outcome(True, after)


def compared(asked: Json, answer: Json, totals: "collections.Counter[str]") -> Iterator[str]:
    """Return the differences of a sequence and count outcomes, until the first difference."""
    if "base-error" in answer:
        yield f"Iceberg does not read the base: {answer['base-error']['message']}"
        return
    document = answer["base"]
    for number, (commit, theirs) in enumerate(zip(asked["commits"], answer["commits"], strict=True)):
        totals["commits"] += 1
        now = theirs["document"].get("last-updated-ms", theirs["now"]) if "document" in theirs else theirs["now"]
        ours = outcome_of(asked["kind"], document, commit, now)
        totals[f"{asked['kind']}s accepted" if theirs["ok"] else f"{asked['kind']}s refused"] += 1
        if ours.ok != theirs["ok"]:
            said = f"Iceberg {'accepts' if theirs['ok'] else 'refuses: ' + str(theirs)}, we {ours.reason or 'accept'}"
            yield f"commit {number}: {said} | {json.dumps(commit['updates'])[:1500]}"
            return
        if not theirs["ok"]:
            same = ours.reason == theirs["message"]
            totals["messages equal" if same else "messages other"] += 1
            if not same:
                totals[f"message: {_short(theirs['message'])} -> {_short(ours.reason)}"] += 1
            continue
        expected = theirs.get("document", document)
        if ids_generated(commit, ours.document, expected):
            totals["generated ids differ"] += 1
            return
        found, wanted = normal(ours.document, asked["kind"]), normal(expected, asked["kind"])
        if found != wanted:
            names = [name for name in {*found, *wanted} if found.get(name) != wanted.get(name)]
            shown = "; ".join(f"{name}: ours {found.get(name)} theirs {wanted.get(name)}" for name in names)
            yield f"commit {number}: documents differ in {shown[:1500]} | {json.dumps(commit['updates'])[:1500]}"
            return
        document = expected


def normal(document: Json | None, kind: str) -> Json:
    """Return a document without what may differ: the order of Iceberg's hash maps, times and ids that it makes up."""
    found = dict(document or {})
    for name in ("statistics", "partition-statistics"):
        if name in found:
            found[name] = sorted(found[name], key=lambda one: json.dumps(one, sort_keys=True))
    if kind == "view":
        found["version-log"] = [entry["version-id"] for entry in found["version-log"]]
        if found.get("view-uuid") == NEW_UUID:
            del found["view-uuid"]
    return found


def ids_generated(commit: Json, ours: Json | None, theirs: Json) -> bool:
    """Return whether the documents differ in partition field ids that the client left to the catalog."""
    left_out = any(
        "field-id" not in field
        for update in commit["updates"]
        if isinstance(update, dict) and update.get("action") == "add-spec"
        for field in update["spec"]["fields"]
    )
    if not left_out:
        return False
    return (ours or {})["partition-specs"] != theirs["partition-specs"] and _without_ids(ours) == _without_ids(theirs)


def _without_ids(document: Json | None) -> Json:
    found = copy.deepcopy(document or {})
    found.pop("last-partition-id", None)
    for fields in [*(spec["fields"] for spec in found["partition-specs"]), found.get("partition-spec", [])]:
        for field in fields:
            field.pop("field-id", None)
    return normal(found, "table")


def _short(text: str | None) -> str:
    return "null" if text is None else "".join("#" if letter.isdigit() else letter for letter in text)[:110]
