"""Issue 3, "Must show" 7: after purges by both engines nothing secret is anywhere but at home."""

from collections import Counter

import pytest

from tests.integration.acceptance.secret_search import Found, Needles
from tests.integration.acceptance.traces import traces

pytestmark = [pytest.mark.stack, pytest.mark.spark]


@pytest.fixture(scope="module")
def purged(world, killed_job):
    """The tasks of a table purged while its caller waited, and of one purged by Spark in two attempts."""
    made = world.table()
    # Both principals: the catalog vends what it has in its cache, so these are the keys that the functions got.
    world.load(made.name)
    world.load(made.name, world.service_credential())
    answer = world.settled(world.revended(world.request(made)))[-1]
    assert answer.status_code == 200, answer.text
    return answer.json()["delegation_task_id"], killed_job.outcome["task_id"]


def test_no_store_log_history_or_argument_holds_a_secret(world, purged):
    secrets = world.secrets()
    assert len(secrets) > 10
    assert Needles(secrets).hits(traces(world)) == []


def test_the_search_sees_every_kind_of_trace(world, purged):
    """The ids of the two tasks are no secret: where they are found, a secret would have been."""
    found = list(traces(world))
    kinds = {hit.partition(": ")[0] for hit in Needles(purged).hits(found)}
    count = Counter(place.partition(" ")[0] for place in kinds)
    assert {"table", "object", "execution", "history", "job", "file", "command"} <= count.keys()
    names = {place for place in kinds if place.startswith(("table", "file"))}
    logs = {f"file logs/{name}.log" for name in ("api", "acquire", "prepare", "start_job", "heartbeat", "complete")}
    assert {"table delegation-tasks", "table delegation-idempotency", *logs} <= names
    assert any(name.startswith("file logs/emr/") for name in names)


def test_a_secret_in_one_of_the_logs_would_be_found(world, purged):
    secret = max((each for each in world.secrets() if not each.startswith("eyJ")), key=len)
    log = world.process.state_dir / "logs" / "planted.log"
    log.write_text(f"loaded the table with {secret}\n")
    try:
        hits = Needles([secret]).hits(traces(world))
    finally:
        log.unlink()
    assert hits == [f"file logs/planted.log: a known secret at byte {len('loaded the table with ')}"]


def test_the_addresses_and_secrets_of_the_stack_are_at_home(world):
    """stack.json and Secrets Manager are what the search leaves out: they do hold secrets."""
    home = Found("stack.json", world.process.path.read_bytes())
    assert Needles([world.stack.client_secret.get_secret_value()]).hits([home])
