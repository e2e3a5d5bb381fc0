"""Whatever JSON the catalog answers to a mutation with a key, or to the reads after it, the gateway answers.

An answer that may have been applied is never answered as refused, and what is stored is replayed.
"""

import json
import random

import pytest

from delegation.gateway.forwarding import Forwarder, KnownCatalogs
from delegation.gateway.keys.calls import denies
from delegation.gateway.messages import CatalogAnswer, CatalogOutcomeUnknown, CatalogRequest
from tests.effort import THOROUGH, examples
from tests.unit.gateway.keys.mutations import CASES, Case
from tests.unit.gateway.keys.stand_in import AFTER_LEASE, KeyedCatalog, Life
from tests.unit.polaris.test_hostile_answers import DEEP, HOSTILE, variants

JSON = (("Content-Type", "application/json"),)


def hostile(answer: CatalogAnswer, seed: int, number: int) -> list[bytes]:
    """Bodies that are no answers, and others with one value of the catalog's own replaced."""
    values = HOSTILE if THOROUGH else random.Random(answer.body).sample(HOSTILE, 6)
    found = [*(DEEP if THOROUGH else DEEP[:1]), *(json.dumps(each).encode() for each in values)]
    if answer.body.startswith(b"{"):
        changed = list(variants(json.loads(answer.body)))
        found += [json.dumps(each).encode() for each in random.Random(seed).sample(changed, min(number, len(changed)))]
    return found


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("where", ["change", "read"])
def test_whatever_is_answered_to_a_mutation_the_gateway_answers(case: Case, where: str):
    seen: list[CatalogAnswer] = []

    def kept(_request: CatalogRequest, answer: CatalogAnswer) -> CatalogAnswer:
        seen.append(answer)
        return answer

    played(case, where, kept)
    for body in hostile(seen[-1], 48, examples(25)) if seen else ():
        played(case, where, lambda _request, answer, body=body: CatalogAnswer(answer.status, JSON, body))


def played(case: Case, where: str, change) -> None:
    """Send a mutation, and its repeat; `change` replaces the catalog's answers to changes, or to reads after one."""
    world = KeyedCatalog()
    case.prepare(world)
    request = case.request(world)

    def respond(sent: CatalogRequest, answer: CatalogAnswer) -> CatalogAnswer:
        if (sent.method in {"GET", "HEAD"}) is (where == "read"):
            return change(sent, answer)
        if where == "read":
            raise CatalogOutcomeUnknown("lost")
        return answer

    first = world.call(request, respond=respond)
    assert first.is_success or not (case.effects(world) and denies(first.status)), first
    world.clock.advance(AFTER_LEASE)
    again = world.call(request, Life(), respond=respond)
    assert again.is_success or not (case.effects(world) and denies(again.status)), again
    if first.is_success and case.statuses == {first.status}:
        assert again.status == first.status
    world.close()


def test_whatever_configuration_is_answered_the_gateway_answers():
    world = KeyedCatalog()
    config = {"overrides": {"prefix": "lake"}, "properties": {"a": "b"}, "endpoints": ["x"]}
    bodies = [*DEEP, *(json.dumps(each).encode() for each in variants(config))]
    for number, body in enumerate(bodies):
        answers = CatalogAnswer(200, JSON, body)

        def respond(sent: CatalogRequest, answer: CatalogAnswer, answers=answers) -> CatalogAnswer:
            return answers if sent.path == "v1/config" else answer

        asked = CatalogRequest("GET", "v1/config", "warehouse=lake", world.request("GET", "x").headers)
        assert world.call(asked, respond=respond).status == 200
        upstream = type("Answering", (), {"send": lambda *_, answers=answers, **__: answers})()
        catalogs = KnownCatalogs(Forwarder(upstream, timeout=1))
        made = world.request("POST", "namespaces", {"namespace": ["n"]}, Idempotency_Key=f"k{number}")
        assert world.call(made, catalogs=catalogs).status in {200, 404, 409}
    world.close()
