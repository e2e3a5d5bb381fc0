"""What the gateway answers after an accident: never "not applied" of what was applied, and never applied twice.

Iceberg's clients delete the files of a commit after 400, 401, 403, 404 and 409, those up to 1.10 after 503 too.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from delegation.gateway.messages import CatalogAnswer, CatalogRequest, CatalogUnavailable, error_answer
from tests.unit.gateway.keys import mutations as requests
from tests.unit.gateway.keys.mutations import (
    SCHEMA,
    TABLE,
    VIEW,
    commit_request,
    exists,
    gone,
    metadata,
    namespace,
    nothing,
    sent,
    table,
    there,
    versions,
)
from tests.unit.gateway.keys.stand_in import KeyedCatalog, Life

NOT_APPLIED = frozenset({400, 401, 403, 404, 405, 409, 422, 503})


def keyed(world: KeyedCatalog, method: str, path: str, body: Any = None, **headers: str) -> CatalogRequest:
    return world.request(method, path, body, Idempotency_Key="k", **headers)


def append(world: KeyedCatalog) -> CatalogRequest:
    return keyed(world, "POST", TABLE, commit_request(world))


def assert_unknown(answer: CatalogAnswer | None) -> None:
    error = json.loads(answer.body)["error"]
    assert (answer.status in {500, 504}, error["type"]) == (True, "CommitStateUnknownException"), answer.body


def renamed(world: KeyedCatalog, to: str = "elsewhere") -> None:
    ends = {"source": {"namespace": ["ns"], "name": "t"}, "destination": {"namespace": ["ns"], "name": to}}
    assert world.direct("POST", "tables/rename", ends, who="other").is_success


def dropped(world: KeyedCatalog) -> None:
    assert world.direct("DELETE", TABLE, who="other").is_success


def replaced(world: KeyedCatalog) -> None:
    dropped(world)
    assert world.direct("POST", "namespaces/ns/tables", {"name": "t", "schema": SCHEMA}, who="other").is_success


def renamed_and_replaced(world: KeyedCatalog) -> None:
    renamed(world)
    body = {"name": "t", "schema": SCHEMA, "location": "s3://lake/tables/ns/fresh"}
    assert world.direct("POST", "namespaces/ns/tables", body, who="other").is_success


@pytest.mark.parametrize("act", [renamed, dropped, replaced, renamed_and_replaced])
def test_a_commit_is_not_refused_after_its_table_moved(
    world: KeyedCatalog, act: Callable[[KeyedCatalog], None]
) -> None:
    table(world)
    request = append(world)
    world.lost(request)
    act(world)
    for _ in range(2):
        assert_unknown(world.call(request))


def test_a_commit_whose_table_comes_back_is_answered_with_its_success(world: KeyedCatalog) -> None:
    table(world)
    request = append(world)
    world.lost(request)
    renamed(world)
    assert_unknown(world.call(request))
    back = {"source": {"namespace": ["ns"], "name": "elsewhere"}, "destination": {"namespace": ["ns"], "name": "t"}}
    assert world.direct("POST", "tables/rename", back).is_success
    answer = world.call(request)
    assert (answer.status, versions(world)) == (200, 1)


def answering(status: int, body: bytes | None = None, *, to: str = "") -> Callable[..., CatalogAnswer]:
    """Replace the catalog's answers, to requests of one method or all."""
    made = error_answer(status, "SomeException", "no")
    made = made if body is None else CatalogAnswer(status, (("Content-Type", "text/html"),), body)
    return lambda sent, answer: made if to in {"", sent.method} else answer


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 503])
def test_no_refusal_of_a_repeat_says_that_the_first_was_not_applied(world: KeyedCatalog, status: int) -> None:
    table(world)
    request = append(world)
    world.lost(request)
    assert_unknown(world.call(request, respond=answering(status)))
    answer = world.call(request)
    assert (answer.status, versions(world)) == (200, 1)


def test_a_token_that_expired_meanwhile_is_no_refusal_of_what_was_applied(world: KeyedCatalog) -> None:
    table(world)
    request = append(world)
    world.lost(request)
    assert_unknown(world.call(request, trusts_another_key=True, respond=answering(401, b"")))


def test_a_duplicate_of_a_call_that_runs_is_no_conflict(world: KeyedCatalog) -> None:
    table(world)
    request, seen = append(world), []
    life = Life(lambda point, _: point == "after change", lambda: seen.append(world.call(request)))
    answer = world.call(request, life)
    assert answer.status == 200
    assert_unknown(seen[0])
    assert seen[0].status == 504
    assert int(seen[0].header("Retry-After")) > 0


@dataclass(frozen=True)
class Undone:
    """A mutation, what another writer does after it was applied, and what shows that it was applied again."""

    name: str
    request: Callable[[KeyedCatalog], CatalogRequest]
    prepare: Callable[[KeyedCatalog], None]
    undo: Callable[[KeyedCatalog], None]
    is_applied: Callable[[KeyedCatalog], object]

    def __str__(self) -> str:
        return self.name


def property_of(world: KeyedCatalog) -> Any:
    return metadata(world)["properties"].get("a")


def set_property(world: KeyedCatalog, value: str) -> dict[str, Any]:
    return commit_request(world, "t", {"action": "set-properties", "updates": {"a": value}})


def with_property(world: KeyedCatalog) -> None:
    table(world)
    assert world.direct("POST", TABLE, set_property(world, "A")).is_success


def set_back(world: KeyedCatalog) -> None:
    assert world.direct("POST", TABLE, set_property(world, "A"), who="other").is_success


def renames_back(path: str, ends: dict[str, Any]) -> Callable[[KeyedCatalog], None]:
    def act(world: KeyedCatalog) -> None:
        back = {"source": ends["destination"], "destination": ends["source"]}
        assert world.direct("POST", path, back, who="other").is_success

    return act


def noted_table(world: KeyedCatalog) -> None:
    table(world)
    world.registered = world.document(TABLE)["metadata-location"]


def registered_again(world: KeyedCatalog) -> None:
    assert world.direct("POST", "namespaces/ns/register", requests.registration(world), who="other").is_success


def drops(path: str) -> Callable[[KeyedCatalog], None]:
    def act(world: KeyedCatalog) -> None:
        assert world.direct("DELETE", path, who="other").is_success

    return act


def makes_namespace(world: KeyedCatalog) -> None:
    assert world.direct("POST", "namespaces", {"namespace": ["ns"]}, who="other").is_success


def sets_namespace(value: str) -> Callable[[KeyedCatalog], None]:
    def act(world: KeyedCatalog) -> None:
        assert world.direct("POST", "namespaces/ns/properties", {"updates": {"a": value}}, who="other").is_success

    return act


REGISTER, CREATE, VIEWS = "namespaces/ns/register", "namespaces/ns/tables", "namespaces/ns/views"
NS, NS_PROPERTIES = "namespaces/ns", "namespaces/ns/properties"
UNDONE = [
    Undone(
        "properties set back",
        lambda world: keyed(world, "POST", TABLE, set_property(world, "B")),
        with_property,
        set_back,
        lambda world: property_of(world) == "B",
    ),
    Undone(
        "rename undone",
        sent("POST", "tables/rename", requests.RENAME),
        table,
        renames_back("tables/rename", requests.RENAME),
        there("namespaces/ns/tables/new"),
    ),
    Undone(
        "rename of a view undone",
        sent("POST", "views/rename", requests.RENAME_VIEW),
        requests.view,
        renames_back("views/rename", requests.RENAME_VIEW),
        there("namespaces/ns/views/new"),
    ),
    Undone(
        "registered and dropped",
        sent("POST", REGISTER, requests.registration),
        requests.dropped_table,
        dropped,
        there(TABLE),
    ),
    Undone("created and dropped", sent("POST", CREATE, requests.CREATE), namespace, dropped, there(TABLE)),
    Undone("dropped and registered again", sent("DELETE", TABLE), noted_table, registered_again, gone(TABLE)),
    Undone(
        "view created and dropped", sent("POST", VIEWS, requests.view_request()), namespace, drops(VIEW), there(VIEW)
    ),
    Undone(
        "namespace created and dropped",
        sent("POST", "namespaces", {"namespace": ["ns"]}),
        nothing,
        drops(NS),
        there(NS),
    ),
    Undone("namespace dropped and created again", sent("DELETE", NS), makes_namespace, makes_namespace, gone(NS)),
    Undone(
        "properties of a namespace set back",
        sent("POST", NS_PROPERTIES, {"updates": {"a": "B"}}),
        namespace,
        sets_namespace("1"),
        lambda world: world.document(NS)["properties"]["a"] == "B",
    ),
    Undone(
        "staged table committed and dropped",
        sent("POST", TABLE, requests.staged_commit),
        requests.staged,
        dropped,
        there(TABLE),
    ),
]


@pytest.mark.parametrize("case", UNDONE, ids=str)
def test_what_another_undid_is_not_applied_again(world: KeyedCatalog, case: Undone) -> None:
    case.prepare(world)
    request = case.request(world)
    world.lost(request)
    assert case.is_applied(world)
    case.undo(world)
    assert_unknown(world.call(request))
    assert not case.is_applied(world)


def test_a_drop_that_was_never_performed_is_no_success_after_another_renamed_the_table(world: KeyedCatalog) -> None:
    table(world)
    request = keyed(world, "DELETE", TABLE)
    world.never_sent(request)
    renamed(world)
    assert_unknown(world.call(request))
    assert exists(world, "namespaces/ns/tables/elsewhere")


def test_snapshots_are_not_expired_because_another_table_of_the_name_lacks_them(world: KeyedCatalog) -> None:
    """After this success Iceberg's client deletes the files, which the renamed table still has."""
    table(world)
    assert world.direct("POST", TABLE, commit_request(world)).is_success
    removed = {"action": "remove-snapshots", "snapshot-ids": [requests.SNAPSHOT["snapshot-id"]]}
    request = keyed(world, "POST", TABLE, commit_request(world, "t", removed))
    world.never_sent(request)
    renamed_and_replaced(world)
    assert_unknown(world.call(request))


def test_updates_beside_removals_are_unknown_although_polaris_refuses_them(world: KeyedCatalog) -> None:
    """Polaris 1.7 answers 409 and has applied the updates."""
    namespace(world)
    assert world.direct("POST", "namespaces/ns/properties", {"updates": {"old": "1"}}).is_success
    body = {"updates": {"new": "2"}, "removals": ["old"]}
    request = keyed(world, "POST", "namespaces/ns/properties", body)
    for _ in range(2):
        assert_unknown(world.call(request))
    found = world.document("namespaces/ns")["properties"]
    assert (found.get("new"), found.get("old")) == ("2", "1")
    assert world.direct("POST", "namespaces/ns/properties", {"removals": ["old"]}, who="other").is_success
    answer = world.call(request)
    assert answer.status == 200


def test_a_namespace_with_a_location_is_known_although_polaris_adds_a_slash(world: KeyedCatalog) -> None:
    body = {"namespace": ["own"], "properties": {"location": "s3://lake/tables/own"}}
    request = keyed(world, "POST", "namespaces", body)
    world.lost(request)
    assert world.document("namespaces/own")["properties"]["location"] == "s3://lake/tables/own/"
    answer = world.call(request)
    assert answer.status == 200


@pytest.mark.parametrize("body", [b"<html>Service Unavailable</html>", b"", b"{}", b'{"message": "no"}', b"[]", b'"x"'])
@pytest.mark.parametrize("status", [200, 302, 400, 403, 404, 409, 502])
def test_another_servers_answer_is_an_unknown_outcome(world: KeyedCatalog, status: int, body: bytes) -> None:
    table(world)
    request = append(world)
    assert_unknown(world.call(request, Life(), respond=answering(status, body)))
    answer = world.call(request)
    assert (answer.status, answer.header("Idempotency-Replayed"), versions(world)) == (200, None, 1)


@pytest.mark.parametrize("status", [200, 404, 409, 503])
def test_what_a_proxy_answered_is_looked_into_at_once(world: KeyedCatalog, status: int) -> None:
    table(world)
    request = append(world)
    answer = world.call(request, respond=answering(status, b"<html></html>", to="POST"))
    assert (answer.status, json.loads(answer.body)["metadata"]) == (200, metadata(world))
    assert world.call(request).header("Idempotency-Replayed") == "true"


@pytest.mark.parametrize("status", [401, 429])
def test_a_call_that_was_turned_away_is_not_stored_and_the_next_is_a_first(world: KeyedCatalog, status: int) -> None:
    """Polaris has no body for either. Of a drop nothing could be proved afterwards."""
    table(world)
    request = keyed(world, "DELETE", TABLE)
    refused = world.call(request, refuse=lambda _request: CatalogAnswer(status))
    answer = world.call(request)
    assert (refused.status, answer.status, exists(world, TABLE)) == (status, 204, False)


def test_a_call_after_one_that_was_turned_away_may_have_been_applied(world: KeyedCatalog) -> None:
    """A first call would get 409 from the catalog, after which a client deletes the metadata of its table."""
    namespace(world)
    request = keyed(world, "POST", "namespaces/ns/tables", {"name": "t", "schema": SCHEMA})
    assert world.call(request, refuse=lambda _request: CatalogAnswer(429)).status == 429
    world.lost(request)
    answer = world.call(request)
    assert (answer.status, json.loads(answer.body)["metadata"]) == (200, metadata(world))


def test_a_catalog_that_was_not_reached_is_no_unknown_outcome(world: KeyedCatalog) -> None:
    def fail() -> None:
        raise CatalogUnavailable("no connection")

    table(world)
    request = keyed(world, "DELETE", TABLE)
    answer = world.call(request, Life(lambda point, _: point == "before change", fail))
    assert (answer.status, answer.header("Retry-After") is not None) == (429, True)
    again = world.call(request)
    assert (again.status, exists(world, TABLE)) == (204, False)


def repeated_behind(world: KeyedCatalog) -> Callable[[CatalogRequest, CatalogAnswer], CatalogAnswer]:
    """A proxy before the catalog lost the answer, and sent the change again: a service mesh does so after 503."""
    return lambda sent, answer: answer if sent.method == "GET" else world.upstream.send(sent, timeout=1)


@pytest.mark.parametrize(
    ("prepare", "method", "path", "body"),
    [
        (table, "POST", TABLE, commit_request),
        (requests.staged, "POST", TABLE, requests.staged_commit),
        (requests.two_tables, "POST", "transactions/commit", requests.two_commits),
    ],
    ids=["append", "first commit", "transaction"],
)
def test_a_refusal_of_what_a_proxy_behind_the_gateway_repeated_is_no_refusal(
    world: KeyedCatalog,
    prepare: Callable[[KeyedCatalog], None],
    method: str,
    path: str,
    body: Callable[[KeyedCatalog], Any],
) -> None:
    """The second is refused as a conflict with the first, and the client would delete the files of the live table."""
    prepare(world)
    request = keyed(world, method, path, body(world))
    answer = world.call(request, respond=repeated_behind(world))
    assert answer.is_success
    assert world.call(request).header("Idempotency-Replayed") == "true"


@pytest.mark.parametrize(
    "unread",
    [
        CatalogAnswer(503, (("Content-Type", "text/html"),), b"<html></html>"),
        error_answer(401, "NotAuthorizedException", "expired"),
    ],
    ids=["a proxy's answer", "an expired token"],
)
def test_a_refusal_that_cannot_be_looked_into_is_unknown(world: KeyedCatalog, unread: CatalogAnswer) -> None:
    table(world)
    request, behind = append(world), repeated_behind(world)
    answer = world.call(request, respond=lambda sent, answer: unread if sent.method == "GET" else behind(sent, answer))
    assert_unknown(answer)
    answer = world.call(request)
    assert (answer.status, versions(world)) == (200, 1)


@pytest.mark.parametrize("status", [401, 403])
def test_who_may_neither_commit_nor_load_is_refused(world: KeyedCatalog, status: int) -> None:
    table(world)
    refused = error_answer(status, "ForbiddenException", "no")
    answer = world.call(append(world), refuse=lambda _request: refused)
    assert (answer.status, versions(world)) == (status, 0)


def test_a_refusal_that_would_delete_files_costs_one_read_and_others_none(world: KeyedCatalog) -> None:
    table(world)
    never = {"type": "assert-table-uuid", "uuid": "00000000-0000-0000-0000-000000000000"}
    change = [{"action": "set-properties", "updates": {"p": "1"}}]
    for number, updates, methods in ((1, commit_request(world)["updates"], ["POST", "GET"]), (2, change, ["POST"])):
        body = {"requirements": [never], "updates": updates}
        world.sent.clear()
        answer = world.call(world.request("POST", TABLE, body, Idempotency_Key=f"k{number}"))
        assert (answer.status, [each.method for each in world.sent]) == (409, methods)


def test_a_refused_transaction_costs_the_reads_until_a_table_proves_it(world: KeyedCatalog) -> None:
    requests.two_tables(world)
    body = requests.two_commits(world)
    never = {"type": "assert-table-uuid", "uuid": "00000000-0000-0000-0000-000000000000"}
    body["table-changes"][1] = {**body["table-changes"][0], "identifier": {"namespace": ["ns"], "name": "u"}}
    body["table-changes"][1]["requirements"] = [never]
    world.sent.clear()
    answer = world.call(keyed(world, "POST", "transactions/commit", body))
    assert (answer.status, [each.method for each in world.sent]) == (409, ["POST", "GET"])


@pytest.mark.parametrize("newer", [False, True], ids=["1.7: 400", "newer: 500"])
def test_a_commit_whose_outcome_the_catalog_does_not_know_is_looked_for(world: KeyedCatalog, newer: bool) -> None:
    table(world)
    world.catalog.warehouse.newer = newer
    request = append(world)
    world.catalog.tables.unknown_commits = 1
    first, again = world.call(request), world.call(request)
    assert (first.status, again.status) == (200, 200)
    assert len(metadata(world)["snapshots"]) == 1
