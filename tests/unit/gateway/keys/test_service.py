"""Keyed mutations as their callers see them: replays, refusals, tokens and credentials."""

import json
import random
from dataclasses import replace
from datetime import timedelta

import pytest

from delegation.edge.errors import KeysUnavailable
from delegation.gateway.keys.service import Patience
from delegation.gateway.messages import CatalogAnswer, CatalogOutcomeUnknown, CatalogUnavailable, error_answer
from delegation.idempotency.reservations import RecordsUnavailable
from tests.unit.gateway.keys.mutations import (
    SCHEMA,
    catalog_that_unregisters_tables,
    commit_request,
    metadata,
    namespace,
    table,
    versions,
)
from tests.unit.gateway.keys.stand_in import AFTER_LEASE, LIFETIME, VEND, KeyedCatalog, Life, kill

NS = {"namespace": ["ns"], "properties": {}}
CREATE = {"name": "t", "schema": SCHEMA}
TABLE = "namespaces/ns/tables/t"


def error_of(answer: CatalogAnswer) -> dict:
    error = json.loads(answer.body)["error"]
    assert error["code"] == answer.status
    return error


def keyed(world: KeyedCatalog, method="POST", path="namespaces", body=NS, key="k", **headers):
    return world.request(method, path, body, Idempotency_Key=key, **headers)


@pytest.mark.parametrize("key", ["a", "9", "a" * 255, "A-b_c.d"])
def test_other_keys_than_uuids_are_permitted_and_are_not_sent_to_the_catalog(world, key):
    assert world.call(keyed(world, key=key)).status == 200
    assert all(one.header("Idempotency-Key") is None for one in world.sent)


def test_two_keys_are_refused(world):
    request = keyed(world)
    assert world.call(replace(request, headers=(*request.headers, ("idempotency-key", "b")))).status == 400


def test_another_payload_is_refused_and_the_same_in_other_words_is_not(world):
    body = b'{"namespace": ["ns"], "properties": {"b": "1", "a": "2"}}'
    assert world.call(keyed(world, body=body)).status == 200
    same = b'{"properties":{"a":"2","b":"\\u0031"},"namespace":["ns"]}'
    assert world.call(keyed(world, body=same)).header("Idempotency-Replayed") == "true"
    answer = world.call(keyed(world, body={**NS, "properties": {"a": "3"}}))
    assert (answer.status, error_of(answer)["type"]) == (422, "idempotency_key_conflict")


def test_the_query_is_part_of_the_payload(world):
    table(world)
    plain = replace(keyed(world, "DELETE", TABLE, None), query="purgeRequested=false")
    assert world.call(plain).status == 204
    assert world.call(replace(plain, query="")).status == 422


def test_a_body_that_is_no_json_is_refused_by_the_catalog_and_that_is_replayed(world):
    first = world.call(keyed(world, body=b"{"))
    again = world.call(keyed(world, body=b"{"))
    assert (first.status, again.status, again.header("Idempotency-Replayed")) == (400, 400, "true")
    assert world.call(keyed(world, body=b"[")).status == 422


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"a":' * 100_000, b"[" * 100_000 + b"]" * 100_000])
def test_a_body_without_end_of_levels_is_refused_before_anything_is_done(world, body):
    answer = world.call(keyed(world, body=body))
    assert (answer.status, error_of(answer)["type"], world.sent) == (400, "BadRequestException", [])


def test_a_compressed_body_is_refused_because_it_could_not_be_verified(world):
    answer = world.call(keyed(world, body=b"\x1f", Content_Encoding="gzip"))
    assert (answer.status, world.sent) == (415, [])


def test_a_repeat_has_the_whole_time_again_after_it_has_verified(world):
    table(world)
    request = keyed(world, path=TABLE, body=commit_request(world))
    world.never_sent(request)
    slow = Life(lambda point, _: point == "after read", lambda: world.clock.advance(timedelta(seconds=11)))
    assert (world.call(request, slow).status, versions(world)) == (200, 1)
    assert world.timeouts[-1] == 12


def test_a_process_that_slept_until_another_had_its_key_sends_nothing(world):
    request = keyed(world)

    def sleep() -> None:
        world.clock.advance(AFTER_LEASE)
        assert world.call(request).status == 500  # whether the first call is sent is not known

    slept = Life(lambda point, _: point == "after reserve", sleep)
    assert world.call(request, slept).status == 504
    assert {each.method for each in world.sent} == {"GET"}


def test_a_process_that_slept_after_it_extended_its_lease_sends_nothing(world):
    table(world)
    request = keyed(world, path=TABLE, body=commit_request(world))
    world.never_sent(request)

    def sleep() -> None:
        world.clock.advance(AFTER_LEASE)
        assert (world.call(request).status, versions(world)) == (200, 1)
        world.sent.clear()

    slept = Life(lambda point, _: point == "after release", sleep)
    world.call(request, slept)
    assert {each.method for each in world.sent} <= {"GET"}


def test_a_repeated_unregistration_names_the_table_s_last_metadata_file(world):
    catalog_that_unregisters_tables(world)
    location = world.document(TABLE)["metadata-location"]
    request = keyed(world, path=f"{TABLE}/unregister", body=None)
    assert world.call(request).status == 200
    again = world.call(request)
    assert (again.status, again.header("Idempotency-Replayed")) == (200, "true")
    assert json.loads(again.body)["metadata-location"] == location
    assert world.call(keyed(world, path=f"{TABLE}/unregister", body={"a": 1})).status == 422


def test_of_a_table_too_large_to_store_a_repeated_unregistration_names_the_metadata_file(world):
    catalog_that_unregisters_tables(world)
    noise = {f"p{number}": random.Random(number).randbytes(400).hex() for number in range(1000)}
    change = commit_request(world, "t", {"action": "set-properties", "updates": noise})
    location = json.loads(world.direct("POST", TABLE, change).body)["metadata-location"]
    request = keyed(world, path=f"{TABLE}/unregister", body=None)
    assert json.loads(world.call(request).body)["metadata"]["properties"] == noise
    assert json.loads(world.call(request).body) == {"metadata-location": location}


def test_an_unregistration_without_an_answer_is_unknown_and_says_where_the_table_was(world):
    catalog_that_unregisters_tables(world)
    location = world.document(TABLE)["metadata-location"]
    request = keyed(world, path=f"{TABLE}/unregister", body=None)
    world.lost(request)
    answer = world.call(request)
    assert (answer.status, error_of(answer)["type"]) == (500, "CommitStateUnknownException")
    assert location in error_of(answer)["message"]


@pytest.mark.parametrize("then", ["renamed", "committed"])
def test_a_name_that_is_free_after_a_lost_unregistration_proves_nothing(world, then):
    """Either way the name is free and the metadata file from before the call is there.

    A renamed table is still the catalog's: a drop through this gateway is such a rename, and its purge follows. The
    file of a table that was committed to meanwhile is not its last one.
    """
    catalog_that_unregisters_tables(world)
    request = keyed(world, path=f"{TABLE}/unregister", body=None)
    world.never_sent(request)
    if then == "renamed":
        ends = {"source": {"namespace": ["ns"], "name": "t"}, "destination": {"namespace": ["ns"], "name": "hidden"}}
        assert world.direct("POST", "tables/rename", ends).is_success
    else:
        assert world.direct("POST", TABLE, commit_request(world)).is_success
        assert world.direct("POST", f"{TABLE}/unregister").is_success
    assert world.direct("GET", TABLE).status == 404
    answer = world.call(request)
    assert (answer.status, error_of(answer)["type"]) == (500, "CommitStateUnknownException")


def test_a_catalog_that_unregisters_no_tables_refuses_that_itself(world):
    table(world)
    answer = world.call(keyed(world, path=f"{TABLE}/unregister", body=None))
    assert (answer.status, error_of(answer)["type"]) == (405, "NotAllowedException")


def test_a_key_belongs_to_the_resource_the_realm_and_the_principal(world):
    assert world.call(keyed(world)).status == 200
    assert world.call(keyed(world)).header("Idempotency-Replayed") == "true"
    others = world.request("POST", "namespaces", NS, who="other", Idempotency_Key="k")
    assert world.call(others).status == 409  # the catalog's: it exists
    elsewhere = keyed(world, path="namespaces/ns/properties", body={"updates": {"a": "1"}})
    assert (world.call(elsewhere).status, world.call(keyed(world, Polaris_Realm="other")).status) == (200, 404)
    assert world.call(keyed(world, Polaris_Realm="POLARIS")).header("Idempotency-Replayed") == "true"


def test_the_same_resource_in_other_escapes_is_the_same(world):
    namespace(world)
    body = {"name": "t", "schema": SCHEMA}
    assert world.call(keyed(world, path="namespaces/ns/tables", body=body)).status == 200
    again = world.call(keyed(world, path="n%61mespaces/%6es/tables", body=body))
    assert (again.status, again.header("Idempotency-Replayed")) == (200, "true")


def test_a_refusal_is_replayed_though_the_catalog_would_accept_by_then(world):
    assert world.call(keyed(world, path="namespaces/ns/tables", body=CREATE)).status == 404
    namespace(world)
    assert world.call(keyed(world, path="namespaces/ns/tables", body=CREATE)).status == 404
    assert world.call(keyed(world, path="namespaces/ns/tables", body=CREATE, key="new")).status == 200


def test_a_key_is_forgotten_after_its_lifetime(world):
    assert world.call(keyed(world)).status == 200
    world.clock.advance(LIFETIME)
    assert world.call(keyed(world)).status == 200
    world.tokens["owner"] = world.token("owner")
    world.clock.advance(LIFETIME + timedelta(seconds=1))
    world.tokens["owner"] = world.token("owner")
    assert world.call(keyed(world)).status == 409


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_failed_answer_is_returned_and_never_stored_and_the_repeat_finds_what_was_applied(world, status):
    table(world)
    request = keyed(world, path=TABLE, body=commit_request(world))

    def failing(sent, answer):
        return error_answer(status, "Failure", "failed after it was applied")

    # Iceberg's Java client up to 1.10 takes 503 for "not applied"
    assert world.call(request, respond=failing).status == (500 if status == 503 else status)
    again = world.call(request)
    assert (again.status, again.header("Idempotency-Replayed"), versions(world)) == (200, None, 1)
    assert json.loads(again.body)["metadata"] == metadata(world)
    assert world.call(request).header("Idempotency-Replayed") == "true"


def test_a_commit_of_data_takes_one_call_of_the_catalog_and_two_of_the_store(world):
    table(world)
    life = Life()
    assert world.call(keyed(world, path=TABLE, body=commit_request(world)), life).status == 200
    assert [each for each in life.points if each.startswith("before")] == [
        "before reserve", "before change", "before finalize",
    ]  # fmt: skip


def test_a_commit_that_conflicts_stays_a_conflict(world):
    table(world)
    request = keyed(world, path=TABLE, body=commit_request(world))
    world.never_sent(request)
    other = commit_request(world)
    other["updates"][0]["snapshot"]["snapshot-id"] = other["updates"][1]["snapshot-id"] = 5
    assert world.direct("POST", TABLE, other).status == 200
    answer = world.call(request)
    assert (answer.status, error_of(answer)["type"], versions(world)) == (409, "CommitFailedException", 1)


def test_a_commit_is_found_after_others_followed_and_its_snapshot_expired(world):
    table(world)
    request = keyed(world, path=TABLE, body=commit_request(world))
    world.lost(request)
    following = commit_request(world)
    first = following["updates"][1]["snapshot-id"]
    following["requirements"] = []
    following["updates"][0]["snapshot"] |= {"snapshot-id": 5, "sequence-number": 2, "parent-snapshot-id": first}
    following["updates"][1]["snapshot-id"] = 5
    following["updates"].append({"action": "remove-snapshots", "snapshot-ids": [first]})
    assert world.direct("POST", TABLE, following).status == 200
    assert (world.call(request).status, versions(world)) == (200, 2)


def test_a_duplicate_waits_for_the_first_as_long_as_its_answer_may_take(world):
    namespace(world)
    request = keyed(world, path="namespaces/ns/tables", body=CREATE)
    assert world.call(request, Life(lambda point, _: point == "after change", kill)) is None
    now = [0.0]

    def sleep(seconds):
        now[0] += seconds
        world.clock.advance(timedelta(seconds=seconds))

    patience = replace(Patience.within(12), sleep=sleep, monotonic=lambda: now[0])
    assert world.call(request, patience=patience).status == 200
    assert 12 < now[0] <= 14


def test_an_unverified_token_gets_the_catalogs_own_refusal_and_reserves_nothing(world):
    request = keyed(world)
    headers = tuple((name, "Bearer x" if name == "Authorization" else value) for name, value in request.headers)
    answer = world.call(replace(request, headers=headers))
    assert (answer.status, answer.header("WWW-Authenticate")) == (401, "Bearer")
    assert [(one.method, one.path, one.query, one.body) for one in world.sent] == [
        ("GET", "v1/config", "warehouse=lake", b"")
    ]
    assert world.call(request).status == 200


def test_a_token_that_only_the_catalog_accepts_has_nothing_done_under_its_key(world):
    answer = world.call(keyed(world), trusts_another_key=True)
    assert (answer.status, error_of(answer)["type"]) == (500, "CommitStateUnknownException")
    assert "gateway-token-public-key" in error_of(answer)["message"]
    assert not world.direct("HEAD", "namespaces/ns").is_success


def test_a_token_that_was_revoked_meanwhile_is_refused_and_nothing_is_stored(world):
    def revoked(sent, answer):
        return CatalogAnswer(401, (("WWW-Authenticate", "Bearer"),))

    table(world)
    for request in (keyed(world), keyed(world, path=TABLE, body=commit_request(world))):
        assert world.call(request, respond=revoked).status == 401
        assert world.call(request).header("Idempotency-Replayed") is None
    assert versions(world) == 1


@pytest.mark.parametrize(
    ("error", "status"),
    [(CatalogUnavailable("no"), 504), (CatalogOutcomeUnknown("no"), 504), (RecordsUnavailable("no"), 504),
     (KeysUnavailable("no"), 504)],
)  # fmt: skip
def test_no_failure_of_a_keyed_request_says_that_nothing_was_applied(world, error, status):
    """After 503 Iceberg's Java client up to 1.10 deletes the files of a commit; this may be the repeat of one."""

    def fail():
        raise error

    table(world)
    answer = world.call(keyed(world, path=TABLE, body=commit_request(world)), Life(lambda *_: True, fail))
    assert (answer.status, error_of(answer)["type"]) == (status, "CommitStateUnknownException")


def test_a_reader_whose_call_was_lost_is_not_guessed_about(world):
    """The caller may not load the table, so nothing shows what its commit did."""
    table(world)
    request = keyed(world, path=TABLE, body=commit_request(world))

    def forbidden(sent, answer):
        return error_answer(403, "ForbiddenException", "no") if sent.method == "GET" else answer

    first = world.call(request, Life(lambda point, _: point == "before change", kill), respond=forbidden)
    world.clock.advance(AFTER_LEASE)
    again = world.call(request, respond=forbidden)
    assert (first, again.status, error_of(again)["type"]) == (None, 500, "CommitStateUnknownException")
    assert "TABLE_READ_PROPERTIES" in error_of(again)["message"]
    assert world.call(request).status == 200


def test_stored_answers_hold_no_credential_and_a_replay_vends_anew(world):
    namespace(world)
    request = keyed(world, path="namespaces/ns/tables", body=CREATE, **VEND)
    first = json.loads(world.call(request).body)
    secret = first["config"]["s3.secret-access-key"]
    stored = repr([each.answer.body for each in world.store._records.values()])
    assert secret not in stored
    assert "token-" not in stored
    world.clock.advance(timedelta(minutes=29))  # the catalog keeps what it vended for half an hour
    world.clock.advance(timedelta(minutes=1))
    replayed = json.loads(world.call(request).body)
    assert replayed["config"]["s3.secret-access-key"] != secret
    assert replayed["storage-credentials"][0]["config"] != first["storage-credentials"][0]["config"]
    for document in (first, replayed):
        document.pop("storage-credentials")
        document["config"] = sorted(document["config"])
    assert replayed == first


SECRETS = {
    "s3.secret-access-key": "hidden-1",
    "etl.API_TOKEN": "hidden-2",
    "jdbc.url": "jdbc:postgresql://ann:hidden-3@db/sales",
    "kafka.sasl.jaas.config": 'PlainLoginModule required username="ann" password="hidden-4";',
    "passphrase": "hidden-5",
}


def test_secrets_in_properties_are_not_stored_and_come_back_from_the_catalog(world):
    namespace(world)
    properties = {**SECRETS, "write.tokenless": "2", "owner": "ann"}
    request = keyed(world, path="namespaces/ns/tables", body={**CREATE, "properties": properties})
    first = json.loads(world.call(request).body)
    assert first["metadata"]["properties"].items() >= properties.items()
    assert "hidden" not in repr([each.answer for each in world.store._records.values()])
    assert "hidden" not in repr([each.answer.body for each in world.store._records.values()])
    replayed = json.loads(world.call(request).body)
    assert replayed["metadata"] == first["metadata"]
    of_namespace = keyed(world, path="namespaces", body={"namespace": ["b"], "properties": SECRETS}, key="other")
    assert json.loads(world.call(of_namespace).body)["properties"].items() >= SECRETS.items()
    assert "hidden" not in repr([each.answer.body for each in world.store._records.values()])
    assert world.call(of_namespace).status == 200


def test_credentials_of_another_table_under_the_name_are_not_given(world):
    namespace(world)
    request = keyed(world, path="namespaces/ns/tables", body=CREATE, **VEND)
    first = json.loads(world.call(request).body)
    assert world.direct("DELETE", TABLE).is_success
    gone = json.loads(world.call(request).body)
    assert world.direct("POST", "namespaces/ns/tables", CREATE).is_success
    again = json.loads(world.call(request).body)
    assert gone == again
    assert (again["metadata"], "storage-credentials" in again) == (first["metadata"], False)
    assert "s3.secret-access-key" not in again["config"]


def test_a_replay_of_a_staged_table_vends_for_its_location(world):
    namespace(world)
    request = keyed(world, path="namespaces/ns/tables", body={**CREATE, "stage-create": True}, **VEND)
    first, again = (json.loads(world.call(request).body) for _ in range(2))
    assert again["metadata"] == first["metadata"]
    assert again["storage-credentials"][0]["prefix"] == first["metadata"]["location"]


def test_a_caller_who_may_no_longer_load_gets_the_answer_without_credentials(world):
    namespace(world)
    request = keyed(world, path="namespaces/ns/tables", body=CREATE, **VEND)
    first = json.loads(world.call(request).body)

    def forbidden(sent, answer):
        return error_answer(403, "ForbiddenException", "no") if sent.path.endswith("/t") else answer

    again = json.loads(world.call(request, respond=forbidden).body)
    assert (again["metadata"], "storage-credentials" in again) == (first["metadata"], False)


def test_an_answer_that_was_too_large_to_store_is_loaded_again(world):
    table(world)
    noise = {f"p{number}": f"{hash((number, 'x')):x}" * 40 for number in range(3000)}
    world.direct("POST", TABLE, {"updates": [{"action": "set-properties", "updates": noise}]})
    request = keyed(world, path=TABLE, body=commit_request(world))
    first, again = world.call(request), world.call(request)
    assert again.header("Idempotency-Replayed") == "true"
    assert json.loads(again.body) == json.loads(first.body)


class Slow:
    """Gateways whose catalog and store take their time, on a clock that both move."""

    def __init__(self, world: KeyedCatalog) -> None:
        self.world = world
        self.now = 0.0

    def takes(self, seconds: float) -> None:
        self.now += seconds
        self.world.clock.advance(timedelta(seconds=seconds))

    def call(self, request, at, **parts):
        patience = replace(Patience.within(12), sleep=self.takes, monotonic=lambda: self.now)
        return self.world.call(request, Life(*at), patience=patience, **parts)


def test_a_request_with_a_key_is_answered_in_time_however_slow_the_catalog_is(world):
    """API Gateway's own 504 comes after 29 s; every read and the mutation take all the time that they are given."""
    table(world)
    slow, request = Slow(world), keyed(world, path=TABLE, body=commit_request(world))

    def time_out():
        slow.takes(world.timeouts[-1])
        raise CatalogOutcomeUnknown("no answer")

    for _ in range(3):
        began = slow.now
        answer = slow.call(request, (lambda point, _: point in {"before change", "before read"}, time_out))
        assert (answer.status in {500, 504}, error_of(answer)["type"]) == (True, "CommitStateUnknownException")
        assert slow.now - began < 23  # and 6 s to store
    assert world.call(request).status == 200


def test_a_table_of_keys_that_is_away_holds_up_keyed_mutations_alone(world):
    table(world)

    def unavailable():
        raise RecordsUnavailable("no answer")

    away = Life(lambda point, _: "reserve" in point, unavailable)
    answer = world.call(keyed(world, path=TABLE, body=commit_request(world)), away)
    assert (answer.status, error_of(answer)["type"], world.sent) == (504, "CommitStateUnknownException", [])
    assert world.call(world.request("GET", "namespaces/ns"), away).status == 200
