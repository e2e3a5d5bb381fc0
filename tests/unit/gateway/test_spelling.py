"""Nothing leads out of the catalog's base, and no resource has two spellings."""

import json
from urllib.parse import quote, unquote, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delegation.gateway import routing
from delegation.gateway.app import answer_event
from delegation.gateway.forwarding import Forwarder, KnownCatalogs
from delegation.gateway.messages import CatalogAnswer, UnsafeName, UnsafePath
from delegation.gateway.routing import DEFAULT_PATHS, CatalogPaths, canonical_path, check_target, segment_of
from delegation.identifiers import TableIdentifier
from tests.effort import examples
from tests.unit.gateway.keys.mutations import RENAME, SCHEMA, namespace, table
from tests.unit.gateway.keys.stand_in import KeyedCatalog
from tests.unit.gateway.world import RecordingUpstream, gateway_over, request

BAD = [".", "..", "", "\\", "a\\b", "x/../lake", "./x", "x//y", "%2e", "%2E%2e", "%252e%252e", "x%2F..%2Flake", "%5C"]
BAD += ["%255c", "%00", "%2F"]


def unsafe_paths():
    for bad in BAD:
        one = bad.replace("\\", "%5C") if "%" not in bad else bad
        for made in {bad, one, quote(bad, safe=""), quote(quote(bad, safe=""), safe="")}:
            yield f"v1/{made}/namespaces/ns/tables/t"
            yield f"v1/lake/namespaces/{made}/tables/t"
            yield f"v1/lake/namespaces/ns/tables/{made}"


OTHERS = {"", "/v1/config", "v1/config/", "v1/x;y/z", "v1/ä", "v1/a b"}


@pytest.mark.parametrize("path", sorted({*unsafe_paths(), *OTHERS}))
def test_a_path_that_servers_read_differently_is_refused_and_not_sent(path):
    upstream = RecordingUpstream()
    for headers in ({}, {"idempotency_key": "k"}):
        answer = gateway_over(upstream).answer(request("DELETE", path, query="purgeRequested=true", **headers))
        assert (answer.status, json.loads(answer.body)["error"]["type"]) == (400, "BadRequestException")
    assert upstream.sent == []


@pytest.mark.parametrize("query", ["a b", "ä", "a#b", "a\r\nX: y"])
def test_a_query_that_a_request_line_cannot_have_is_refused(query):
    with pytest.raises(UnsafePath):
        check_target("v1/config", query)


@pytest.mark.parametrize("name", ["a.b", "...", "t/u", "50%", "ü", "a b", "x=1", "%41", "a;b", "~"])
def test_other_names_are_names(name):
    path = f"v1/lake/namespaces/{quote(name, safe='')}/tables/t"
    check_target(path, "a&b=&c=%7b")
    assert canonical_path(path) == path
    assert segment_of(name) == quote(name, safe="")


SEGMENTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\\\0"), min_size=1).filter(
    lambda name: (
        not set(unquote(unquote(unquote(name))).split("/")) & {"", ".", ".."}
        and not set(unquote(unquote(unquote(name)))) & {"\\", "\0"}
    )
)


@given(SEGMENTS, st.randoms(use_true_random=False))
def test_all_spellings_of_a_segment_are_one(name, choose):
    """Each byte encoded or not, in either case of digits, as far as a request line can have it."""
    spelled = "".join(
        character
        if len(quote(character, safe="")) == 1 or (character in "!$&'()*+,=:@|[]" and choose.random() < 0.5)
        else "".join(f"%{byte:02x}" if choose.random() < 0.5 else f"%{byte:02X}" for byte in character.encode())
        for character in name
    )
    more = "".join(f"%{ord(one):02X}" if one.isalnum() and one.isascii() and choose.random() < 0.2 else one
                   for one in quote(name, safe="") if "%" not in name)  # fmt: skip
    assert canonical_path(f"v1/{spelled}") == canonical_path(f"v1/{quote(name, safe='')}")
    if "%" not in quote(name, safe=""):
        assert canonical_path(f"v1/{more or name}") == canonical_path(f"v1/{name}")


PIECES = [*(f"%{byte:02X}" for byte in range(256)), *(f"%{byte:02x}" for byte in range(256))]
PIECES += [*map(chr, range(256)), "\u2028", "\ud800", "%", "%2", "%%", "%G0", "%25", "%252e", "%2525"]


def refusal_of(check) -> str | None:
    try:
        check()
    except UnsafePath as error:
        return str(error)
    return None


def is_plain_only_if_safe_and_canonical(path: str) -> None:
    """The short way for plain paths lets through what the long way lets through unchanged."""
    if routing._PLAIN.fullmatch(path) is not None:
        routing._check_path(path)
        assert routing._respelled(path) == path
    assert refusal_of(lambda: check_target(path, "")) == refusal_of(lambda: routing._check_path(path))


@pytest.mark.parametrize(
    "around", ["{}", "a{}", "{}b", "v1/{}/c", ".{}", "..{}", "{}.", "v1/{}", "{}/v1", "%2{}", "%{}"]
)
def test_no_plain_path_needs_to_be_checked_further(around):
    for piece in PIECES:
        is_plain_only_if_safe_and_canonical(around.format(piece))


@settings(max_examples=examples(2_000), deadline=None)
@given(st.lists(st.sampled_from([*PIECES, *BAD, "/", "/", "/", "a", ".", "%1F"]), max_size=9))
def test_no_plain_path_of_any_pieces_needs_to_be_checked_further(pieces):
    is_plain_only_if_safe_and_canonical("".join(pieces))


@pytest.mark.parametrize("name", ["orders", "a.b", "...", "ü", "x y", "a=b", "a:b", "~", "a\x1fb", "$"])
def test_what_clients_send_is_plain(name):
    """Iceberg's clients encode names as `quote` does, with capital digits."""
    assert routing._PLAIN.fullmatch(f"v1/lake/namespaces/{quote(name, safe='')}/tables/t")


def test_a_long_path_that_is_not_plain_is_recognized_in_linear_time():
    """The pattern never goes back: a backtracking one would not end."""
    assert routing._PLAIN.fullmatch("v1/" + "a" * 100_000 + "%C3%BC" * 10_000 + "%2F") is None


@pytest.mark.parametrize("name", BAD[:8])
@pytest.mark.parametrize("case", ["rename", "create", "namespace", "transaction", "view"])
def test_a_name_in_a_body_that_would_lead_elsewhere_is_refused_before_a_record_is_made(world_of_keys, name, case):
    world = world_of_keys
    table(world)
    world.sent.clear()
    change = {"identifier": {"namespace": [name], "name": "t"}, "requirements": [], "updates": []}
    method, path, body = {
        "rename": ("POST", "tables/rename", {**RENAME, "destination": {"namespace": ["ns"], "name": name}}),
        "create": ("POST", "namespaces/ns/tables", {"name": name, "schema": SCHEMA}),
        "namespace": ("POST", "namespaces", {"namespace": ["ns", name]}),
        "transaction": ("POST", "transactions/commit", {"table-changes": [change]}),
        "view": ("POST", "namespaces/ns/views", {"name": name, "schema": SCHEMA, "view-version": {}}),
    }[case]
    answer = world.call(world.request(method, path, body, Idempotency_Key="k"))
    assert (answer.status, json.loads(answer.body)["error"]["type"]) == (400, "BadRequestException")
    assert (world.sent, list(world.store._records)) == ([], [])


@pytest.fixture
def world_of_keys():
    world = KeyedCatalog()
    yield world
    world.close()


def test_a_level_of_a_namespace_cannot_contain_the_separator():
    with pytest.raises(UnsafeName):
        DEFAULT_PATHS.namespace("lake", ["a\x1fb"])
    with pytest.raises(UnsafeName):
        CatalogPaths(".").namespace("lake", ["a.b"])


def test_a_catalog_is_no_path_to_another_one():
    with pytest.raises(ValueError, match="dot segment"):
        TableIdentifier("x/../lake", ("ns",), "t")


def test_a_catalog_that_the_configuration_does_not_know_makes_no_record(world_of_keys):
    world = world_of_keys
    namespace(world)
    catalogs = KnownCatalogs(Forwarder(world.upstream, timeout=12))
    gateway = world.gateway(catalogs=catalogs)
    sent = world.request("POST", "namespaces/ns/tables", {"name": "t", "schema": SCHEMA}, Idempotency_Key="k")
    elsewhere = request(sent.method, sent.path.replace("lake", "sea"), sent.body)
    elsewhere = type(sent)(sent.method, elsewhere.path, "", sent.headers, sent.body)
    assert (gateway.answer(elsewhere).status, list(world.store._records)) == (404, [])
    assert (gateway.answer(sent).status, len(world.store._records)) == (200, 1)


def event(path: str, query: dict[str, list[str]] | None = None) -> dict:
    return {
        "httpMethod": "DELETE",
        "path": "/decoded",
        "multiValueHeaders": {},
        "multiValueQueryStringParameters": query,
        "body": None,
        "requestContext": {"path": path},
    }


@settings(max_examples=examples(600), deadline=None)
@given(
    st.lists(
        st.sampled_from(["..", ".", "", "%2e%2E", "%252e", "\\", "%5c", "api", "catalog", "management", "v1", "lake",
                         "namespaces", "%6eamespaces", "ns", "tables", "t", "%2f", "x%2F..%2Flake", ";a", "t;a=b"]),
        max_size=9,
    )
)  # fmt: skip
def test_no_event_leads_out_of_the_base(segments):
    upstream = RecordingUpstream(lambda _request: CatalogAnswer(204))
    gateway = gateway_over(upstream)
    answered = answer_event(event("/api/catalog/" + "/".join(segments)), gateway.answer, "/api/catalog")
    assert answered["statusCode"] in {204, 400, 404}
    for sent in upstream.sent:
        resolved = urlsplit(f"http://c/api/catalog/{sent.path}").path
        for _ in range(4):
            resolved = unquote(resolved)
            assert not {".", "..", ""} & set(resolved.split("/")[1:])
            assert "\\" not in resolved


def test_bytes_of_a_query_that_the_event_has_lost_are_not_guessed():
    sent = event("/api/catalog/v1/x", {"a": ["\N{REPLACEMENT CHARACTER}"]})
    assert answer_event(sent, lambda _: CatalogAnswer(204), "/api/catalog")["statusCode"] == 400
