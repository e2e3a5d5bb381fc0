"""Random stories of two callers with keys, another writer, and accidents, checked by what the catalog really did.

`make gateway-interleavings` plays 10,000.
"""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from delegation.gateway.keys.calls import denies
from delegation.gateway.messages import (
    CatalogAnswer,
    CatalogOutcomeUnknown,
    CatalogRequest,
    CatalogUnavailable,
    error_answer,
)
from delegation.idempotency.reservations import RecordsUnavailable
from delegation.storage.memory import Killed
from infra.local.catalog.layout import ALLOW_OVERLAP, ALLOW_UNSTRUCTURED, PURGE_VIEWS
from tests.kit.explorer import Explorer, Story, WrongOutcome
from tests.unit.gateway.keys.mutations import SCHEMA, SELECT_2, VIEW_VERSION
from tests.unit.gateway.keys.stand_in import AFTER_LEASE, KeyedCatalog, Life

TABLES: Final = ("a", "b")
ATTEMPTS: Final = 4
FATES: Final = (
    *("none",) * 4, "lost answer", "lost answer", "lost request", "killed before", "killed after", "html after",
    "html before", "error after", "unavailable", "unauthorized", "repeated behind",
)  # fmt: skip
HTML: Final = CatalogAnswer(503, (("Content-Type", "text/html"),), b"<html></html>")


@dataclass
class Asked:
    """A mutation with its key: how often the catalog applied it, and what the caller heard."""

    name: str
    request: CatalogRequest
    is_repeatable: bool = False
    """Whether another's equal change is the same: what is gone, or a table that is registered from the same file."""
    adds_files: bool = False
    """Whether its client deletes the files of the commit after a refusal."""
    removed: tuple[str, frozenset[int]] | None = None
    """A table's UUID, and the snapshots whose files its client deletes after a success."""
    applied: int = 0
    heard: list[int] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        """Whether a client would not repeat it."""
        return bool(self.heard) and self.heard[-1] not in {401, 429, 500, 502, 504}


@dataclass
class FatefulUpstream:
    """The catalog as one gateway process meets it; the mutation has a fate, and reads may fail."""

    story: "KeyedStory"
    asked: Asked
    fate: str
    life: Life
    drawn: str = field(init=False)
    is_turned_away: bool = False
    """The catalog refused the token before anything was done: the answer of this call, whatever another one does."""

    def __post_init__(self) -> None:
        self.drawn = self.fate

    def send(self, request: CatalogRequest, *, timeout: float) -> CatalogAnswer:
        """See Upstream.send."""
        draw = self.story.random.random
        if request.method == "GET":
            if draw() < 0.05:
                raise CatalogOutcomeUnknown("a read was lost")
            return HTML if draw() < 0.03 else self.story.catalog.send(request, timeout=timeout)
        fate, self.fate = self.fate, "none"
        if fate == "killed before":
            self._die()
        if fate == "unavailable":
            raise CatalogUnavailable("not reached")
        if fate == "lost request":
            raise CatalogOutcomeUnknown("lost")
        if fate == "unauthorized":
            self.is_turned_away = self.asked.applied == 0
            return CatalogAnswer(401)
        if fate == "html before":
            return HTML
        answer = self.story.catalog.send(request, timeout=timeout)
        self.asked.applied += answer.is_success
        if fate == "repeated behind" and self.asked.adds_files:  # by a proxy between the gateway and the catalog
            answer = self.story.catalog.send(request, timeout=timeout)
            self.asked.applied += answer.is_success
            # The gateway reads the table at once. Somebody who moves it in between hides what was done.
            self.life.at = lambda _point, _number: False
        if fate == "killed after":
            self._die()
        if fate == "lost answer":
            raise CatalogOutcomeUnknown("lost")
        if fate == "html after":
            return CatalogAnswer(self.story.random.choice([200, 404, 409, 502]), HTML.headers, HTML.body)
        if fate == "error after":
            return error_answer(self.story.random.choice([500, 503]), "ServiceFailureException", "failed")
        return answer

    def _die(self) -> None:
        self.life.is_dead = True
        raise Killed


class KeyedStory(Story):
    """One seed; an event is a round of requests."""

    steps = 6

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.world = KeyedCatalog()
        self.close = self.world.close  # type: ignore[method-assign]
        self.catalog = self.world.upstream
        flags = dict.fromkeys((ALLOW_OVERLAP, ALLOW_UNSTRUCTURED), "true") | {PURGE_VIEWS: "false"}
        self.world.catalog.warehouse.replace_properties(flags)
        self.numbers = iter(range(1, 1_000_000))
        self.files: dict[str, str] = {}
        self.all_asked: list[Asked] = []
        self.open: list[Asked] = []
        self.depth = 0

    def begin(self) -> None:
        self.direct("POST", "namespaces", {"namespace": ["ns"], "properties": {"p": "0"}})
        for name in TABLES:
            self.create(name)
            self.appended(name)
            self.appended(name)
        self.direct("POST", "namespaces/ns/views", self.view())

    def act(self) -> None:
        self.open += [asked for _ in range(2) if (asked := self.asks()) is not None]
        self.random.shuffle(self.open)
        for asked in self.open:
            self.disturb()
            self.tell(asked)
        self.open = [each for each in self.open if not each.is_over and len(each.heard) < ATTEMPTS]

    def end(self) -> None:
        for asked in self.open:
            self.tell(asked)
        self.counts.update(f"{each.name} {each.heard[-1] if each.heard else 'nothing'}" for each in self.all_asked)

    # what the two callers ask

    def asks(self) -> Asked | None:
        """Return a mutation that a caller makes of what it sees now."""
        make = self.random.choice(self.makers())
        made = make()
        if made is not None:
            self.all_asked.append(made)
        return made

    def makers(self) -> list[Callable[[], Asked | None]]:
        """What can be asked; commits are the most frequent, as in life."""
        return [self.append, self.append, self.append, self.set_properties, self.add_column, self.expire, self.rename,
                self.drop, self.create_table, self.register, self.transaction, self.create_namespace,
                self.set_namespace, self.drop_namespace, self.create_view, self.replace_view, self.drop_view,
                self.rename_view, self.commit_staged]  # fmt: skip

    def keyed(self, name: str, method: str, path: str, body: Any = None, **more: Any) -> Asked:
        who = self.random.choice(["owner", "other"])
        key = f"key-{next(self.numbers)}"
        return Asked(name, self.world.request(method, path, body, who=who, Idempotency_Key=key), **more)

    def commit(self, name: str, *updates: Any, table: str | None = None, **more: Any) -> Asked | None:
        change = self.change(table or self.random.choice(TABLES), *updates)
        return (
            None if change is None else self.keyed(name, "POST", f"namespaces/ns/tables/{change[0]}", change[1], **more)
        )

    def change(self, table: str, *updates: Any) -> tuple[str, dict[str, Any]] | None:
        found = self.metadata(table)
        if found is None:
            return None
        snapshot, current = next(self.numbers) + 10**12, found["current-snapshot-id"]
        main = None if current == -1 else current
        new = {
            "snapshot-id": snapshot, "sequence-number": found["last-sequence-number"] + 1,
            "timestamp-ms": 1_700_000_000_000, "manifest-list": f"s3://lake/tables/ns/{snapshot}.avro",
            "summary": {"operation": "append"}, **({} if main is None else {"parent-snapshot-id": main}),
        }  # fmt: skip
        appended = [
            {"action": "add-snapshot", "snapshot": new},
            {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": snapshot},
        ]
        requirements = [
            {"type": "assert-table-uuid", "uuid": found["table-uuid"]},
            {"type": "assert-last-assigned-field-id", "last-assigned-field-id": found["last-column-id"]},
        ]
        if not updates:
            requirements.append({"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": main})
        return table, {"requirements": requirements, "updates": list(updates) or appended}

    def append(self) -> Asked | None:
        return self.commit("append", adds_files=True)

    def set_properties(self) -> Asked | None:
        value = f"v{next(self.numbers)}"
        return self.commit("set properties", {"action": "set-properties", "updates": {"p": value}})

    def add_column(self) -> Asked | None:
        table = self.random.choice(TABLES)
        found = self.metadata(table)
        if found is None:
            return None
        last, number = found["last-column-id"] + 1, next(self.numbers)
        current = next(each for each in found["schemas"] if each["schema-id"] == found["current-schema-id"])
        column = {"id": last, "name": f"c{number}", "required": False, "type": "int"}
        schema = {**current, "schema-id": 99, "fields": [*current["fields"], column]}
        added = {"action": "add-schema", "schema": schema, "last-column-id": last}
        return self.commit("add column", added, {"action": "set-current-schema", "schema-id": -1}, table=table)

    def expire(self) -> Asked | None:
        table = self.random.choice(TABLES)
        found = self.metadata(table)
        if found is None:
            return None
        current = found.get("current-snapshot-id")
        old = [each["snapshot-id"] for each in found["snapshots"] if each["snapshot-id"] != current]
        if not old:
            return None
        update = {"action": "remove-snapshots", "snapshot-ids": old}
        return self.commit(
            "expire", update, table=table, is_repeatable=True, removed=(found["table-uuid"], frozenset(old))
        )

    def rename(self) -> Asked:
        ends = {"source": {"namespace": ["ns"], "name": self.random.choice(TABLES)},
                "destination": {"namespace": ["ns"], "name": f"r{next(self.numbers)}"}}  # fmt: skip
        return self.keyed("rename", "POST", "tables/rename", ends)

    def drop(self) -> Asked:
        return self.keyed("drop", "DELETE", f"namespaces/ns/tables/{self.random.choice(TABLES)}")

    def create_table(self) -> Asked:
        return self.keyed("create", "POST", "namespaces/ns/tables", self.table(self.random.choice(TABLES)))

    def register(self) -> Asked | None:
        if not self.files:
            return None
        # Each file once: a table registered again from older metadata than it had is undecidable (docs/gateway.md).
        name, file = self.random.choice(sorted(self.files.items()))
        del self.files[name]
        body = {"name": name, "metadata-location": file}
        return self.keyed("register", "POST", "namespaces/ns/register", body, is_repeatable=True)

    def transaction(self) -> Asked | None:
        first = self.change("a")
        second = self.change("b", {"action": "set-properties", "updates": {"p": f"v{next(self.numbers)}"}})
        if first is None or second is None:
            return None
        changes = [{"identifier": {"namespace": ["ns"], "name": name}, **body} for name, body in (first, second)]
        return self.keyed("transaction", "POST", "transactions/commit", {"table-changes": changes}, adds_files=True)

    def commit_staged(self) -> Asked | None:
        name = f"s{next(self.numbers)}"
        staged = self.direct("POST", "namespaces/ns/tables", {**self.table(name), "stage-create": True})
        made = json.loads(staged.body)["metadata"]
        updates = [
            {"action": "assign-uuid", "uuid": made["table-uuid"]},
            {"action": "set-location", "location": made["location"]},
            {"action": "add-schema", "schema": made["schemas"][0], "last-column-id": 1},
            {"action": "set-current-schema", "schema-id": -1},
            {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
            {"action": "set-default-spec", "spec-id": -1},
            {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
            {"action": "set-default-sort-order", "sort-order-id": -1},
        ]
        body = {"requirements": [{"type": "assert-create"}], "updates": updates}
        return self.keyed("first commit", "POST", f"namespaces/ns/tables/{name}", body, adds_files=True)

    def create_namespace(self) -> Asked:
        body = {"namespace": ["m"], "properties": {"p": f"v{next(self.numbers)}"}}
        return self.keyed("create namespace", "POST", "namespaces", body)

    def set_namespace(self) -> Asked:
        body = {"updates": {"p": f"v{next(self.numbers)}"}}
        return self.keyed("namespace properties", "POST", "namespaces/ns/properties", body)

    def drop_namespace(self) -> Asked:
        return self.keyed("drop namespace", "DELETE", "namespaces/m", is_repeatable=True)

    def create_view(self) -> Asked:
        return self.keyed("create view", "POST", "namespaces/ns/views", self.view())

    def replace_view(self) -> Asked | None:
        found = self.loaded("namespaces/ns/views/v")
        if found is None:
            return None
        number = max(each["version-id"] for each in found["metadata"]["versions"]) + 1
        version = {**VIEW_VERSION, "version-id": number, "timestamp-ms": next(self.numbers),
                   "representations": [{**SELECT_2[0], "sql": f"SELECT {next(self.numbers)}"}]}  # fmt: skip
        body = {
            "requirements": [{"type": "assert-view-uuid", "uuid": found["metadata"]["view-uuid"]}],
            "updates": [
                {"action": "add-view-version", "view-version": version},
                {"action": "set-current-view-version", "view-version-id": -1},
            ],
        }
        return self.keyed("replace view", "POST", "namespaces/ns/views/v", body)

    def drop_view(self) -> Asked:
        return self.keyed("drop view", "DELETE", "namespaces/ns/views/v")

    def rename_view(self) -> Asked:
        ends = {"source": {"namespace": ["ns"], "name": "v"},
                "destination": {"namespace": ["ns"], "name": f"w{next(self.numbers)}"}}  # fmt: skip
        return self.keyed("rename view", "POST", "views/rename", ends)

    # what the other writer does

    def disturb(self) -> None:
        """Do nothing, or something that may undo what was done; refusals do not matter."""
        name = self.random.choice(TABLES)
        act = self.random.choice([
            *(lambda: None,) * 4, lambda: self.moved(name, f"x{name}"), lambda: self.moved(f"x{name}", name),
            self.renamed_back, lambda: self.dropped(name), lambda: self.create(name), self.registered_again,
            lambda: self.appended(name), lambda: self.set_back(name), lambda: self.direct("DELETE", "namespaces/m"),
            lambda: self.direct("POST", "namespaces", {"namespace": ["m"]}),
            lambda: self.direct("POST", "namespaces/ns/properties", {"updates": {"p": "0"}}),
            lambda: self.direct("DELETE", "namespaces/ns/views/v"),
            lambda: self.direct("POST", "namespaces/ns/views", self.view()),
        ])  # fmt: skip
        act()

    def moved(self, source: str, destination: str, kind: str = "tables") -> None:
        ends = {
            "source": {"namespace": ["ns"], "name": source},
            "destination": {"namespace": ["ns"], "name": destination},
        }
        self.direct("POST", f"{kind}/rename", ends)

    def renamed_back(self) -> None:
        for kind, to in (("tables", self.random.choice(TABLES)), ("views", "v")):
            found = json.loads(self.direct("GET", f"namespaces/ns/{kind}").body)["identifiers"]
            moved = [each["name"] for each in found if each["name"][0] in "rw"]
            if moved:
                self.moved(self.random.choice(moved), to, kind)

    def dropped(self, name: str) -> None:
        found = self.loaded(f"namespaces/ns/tables/{name}")
        if found is not None and self.direct("DELETE", f"namespaces/ns/tables/{name}").is_success:
            self.files[name] = found["metadata-location"]

    def registered_again(self) -> None:
        for name, file in sorted(self.files.items()):
            self.direct("POST", "namespaces/ns/register", {"name": name, "metadata-location": file})
            self.files.pop(name)

    def appended(self, name: str) -> None:
        change = self.change(name)
        if change is not None:
            self.direct("POST", f"namespaces/ns/tables/{name}", change[1])

    def set_back(self, name: str) -> None:
        change = self.change(name, {"action": "set-properties", "updates": {"p": "0"}})
        if change is not None:
            self.direct("POST", f"namespaces/ns/tables/{name}", change[1])

    def create(self, name: str) -> None:
        self.direct("POST", "namespaces/ns/tables", self.table(name))

    # how a request is sent, and checked

    def tell(self, asked: Asked) -> None:
        """Send a mutation through a new gateway process once, with a fate, and others acting in between."""
        if asked.is_over:
            return
        life = Life()
        upstream = FatefulUpstream(self, asked, self.random.choice(FATES), life)
        if self.depth < 2 and self.random.random() < 0.5:
            at, slow = self.random.randrange(10), lambda: self.taken_over(asked)
            act = self.random.choice([self.disturb, self.other_call, self.store_fails, slow])
            # What a process sends after it lost its key, because it slept between its look at the clock and the
            # request, is refused by what a commit asserts; nothing else can refuse it.
            is_fenced = act is not slow or asked.adds_files
            life.at = lambda point, number: number == at and (is_fenced or point != "before change")
            life.act = act
        self.world.upstream = upstream
        gateway = self.world.gateway(life)
        self.world.upstream = self.catalog
        answer: CatalogAnswer | None = None
        self.depth += 1
        try:
            answer = gateway.answer(asked.request)
        except Killed:
            self.world.clock.advance(AFTER_LEASE)
        finally:
            self.depth -= 1
        if answer is not None:
            asked.heard.append(answer.status)
            self.told.append(f"{'  ' * self.depth}{asked.name} {asked.request.path}: {upstream.drawn}, {answer.status}")
            self.judge(asked, answer, is_turned_away=upstream.is_turned_away)

    def other_call(self) -> None:
        """Another caller's request, or the same one again, at this very moment."""
        waiting = [each for each in self.all_asked if not each.is_over]
        asked = self.random.choice(waiting) if waiting and self.random.random() < 0.5 else self.asks()
        if asked is not None:
            self.tell(asked)

    def taken_over(self, asked: Asked) -> None:
        """The process sleeps until another call with the same key has taken it over, and then continues."""
        self.world.clock.advance(AFTER_LEASE)
        self.disturb()
        self.tell(asked)

    def store_fails(self) -> None:
        raise RecordsUnavailable("away")

    def judge(self, asked: Asked, answer: CatalogAnswer, *, is_turned_away: bool) -> None:
        """Raise WrongOutcome for a second effect, and for an answer that is not so."""
        what = (
            f"{asked.name}: {answer.status} {answer.body[:300]!r}, applied {asked.applied} times, heard {asked.heard}"
        )
        if asked.applied > 1:
            raise WrongOutcome(f"a double effect: {what}")
        if answer.is_success and asked.applied == 0 and not asked.is_repeatable:
            raise WrongOutcome(f"a success of nothing: {what}")
        if denies(answer.status) and asked.applied and not (is_turned_away and answer.status == 401):
            raise WrongOutcome(f"a refusal of what was applied: {what}")
        if answer.is_success and asked.removed is not None:
            uuid, snapshots = asked.removed
            live = {each["snapshot-id"] for found in self.everywhere(uuid) for each in found["snapshots"]}
            if live & snapshots:
                raise WrongOutcome(f"the client deletes files of live snapshots: {what}")

    # reading

    def direct(self, method: str, path: str, body: Any = None) -> CatalogAnswer:
        sent = self.world.request(method, path, body, who="other")
        answer: CatalogAnswer = self.catalog.send(sent, timeout=12)
        return answer

    def loaded(self, path: str) -> dict[str, Any] | None:
        answer = self.direct("GET", path)
        return json.loads(answer.body) if answer.is_success else None

    def metadata(self, table: str) -> dict[str, Any] | None:
        found = self.loaded(f"namespaces/ns/tables/{table}")
        return None if found is None else found["metadata"]

    def everywhere(self, uuid: str) -> Iterator[dict[str, Any]]:
        for each in json.loads(self.direct("GET", "namespaces/ns/tables").body)["identifiers"]:
            found = self.metadata(each["name"])
            if found is not None and found["table-uuid"] == uuid:
                yield found

    def table(self, name: str) -> dict[str, Any]:
        return {"name": name, "schema": SCHEMA, "properties": {"p": f"v{next(self.numbers)}"}}

    def view(self) -> dict[str, Any]:
        text = [{**SELECT_2[0], "sql": f"SELECT {next(self.numbers)}"}]
        return {"name": "v", "schema": SCHEMA, "view-version": {**VIEW_VERSION, "representations": text}}


EXPLORER = Explorer("tests.unit.gateway.keys.interleaved", KeyedStory)

if __name__ == "__main__":
    sys.exit(EXPLORER.main(sys.argv[1:]))
