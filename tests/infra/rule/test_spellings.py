"""5,000 requests that differ only in spelling: nothing leaves the base, and nothing has a record under two spellings.

The load balancer's rule is evaluated here, and what it leads to the gateway goes through the gateway itself; real nginx
and Envoy do the same in test_proxies.py.
"""

from infra.rule.conditions import RoutedRequest, leads_to_gateway, listener_rules
from tests.effort import examples
from tests.infra.rule.spellings import KEY, SpelledGateway, spelled


def test_no_spelling_leads_a_request_out_of_the_base_or_to_a_second_record() -> None:
    gateway, rules = SpelledGateway(), listener_rules()
    led = 0
    for method, target in spelled(seed=25, number=examples(5000)):
        if leads_to_gateway(RoutedRequest(method, target, (KEY,)), rules):
            led += 1
            gateway.serve(method, target, dict((KEY,)))
    gateway.check()
    assert led > examples(5000) // 2
    assert {400, 404} <= set(gateway.served)
    replayed = led - gateway.served[400] - len(gateway.catalog.paths)
    assert replayed > 100  # spellings of one resource have one record


def test_every_request_of_the_rule_without_the_rule() -> None:
    """The gateway itself refuses what a proxy without such a rule, or with another one, sends it."""
    gateway = SpelledGateway()
    for method, target in spelled(seed=26, number=examples(5000)):
        gateway.serve(method, target, dict((KEY,)))
    gateway.check()
