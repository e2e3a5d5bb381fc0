"""After purges with both engines, secrets are stored only in stack.json, pki and Secrets Manager."""

from collections import Counter

import pytest

from tests.integration.acceptance.secret_search import SecretSearch, Trace
from tests.integration.acceptance.traces import stored_files, traces

pytestmark = pytest.mark.stack


@pytest.fixture(scope="module")
def purged(world, killed_job):
    """The tasks of a table purged synchronously, and of one purged by the Spark engine in two attempts."""
    table = world.table()
    # For both principals: the catalog vends cached credentials, so the functions get these keys too.
    world.load(table.name)
    world.load(table.name, world.service_credential())
    answer = world.settled(world.revended(world.request(table)))[-1]
    assert answer.status_code == 200, answer.text
    return answer.json()["delegation_task_id"], killed_job.outcome["task_id"]


@pytest.fixture(scope="module")
def found(world, purged):
    """All traces, read once."""
    return list(traces(world))


@pytest.mark.long
@pytest.mark.spark
def test_no_store_log_history_or_argument_contains_a_secret(world, found):
    secrets = world.secrets()
    assert len(secrets) > 10
    assert SecretSearch(secrets).hits(found) == []


@pytest.mark.long
@pytest.mark.spark
def test_the_search_covers_every_kind_of_trace(purged, found):
    """The ids of the two tasks are in all of these traces, so a secret would be found in them too."""
    kinds = {hit.partition(": ")[0] for hit in SecretSearch(purged).hits(found)}
    count = Counter(place.partition(" ")[0] for place in kinds)
    assert {"table", "object", "execution", "history", "job", "file", "command"} <= count.keys()
    names = {place for place in kinds if place.startswith(("table", "file"))}
    logs = {f"file logs/{name}.log" for name in ("api", "acquire", "prepare", "start_job", "heartbeat", "complete")}
    assert {"table delegation-tasks", "table delegation-idempotency", *logs} <= names
    assert any(name.startswith("file logs/emr/") for name in names)


@pytest.mark.long
@pytest.mark.spark
def test_a_secret_in_one_of_the_logs_would_be_found(world, purged):
    secret = max((each for each in world.secrets() if not each.startswith("eyJ")), key=len)
    log = world.process.state_dir / "logs" / "planted.log"
    log.write_text(f"loaded the table with {secret}\n")
    try:
        hits = SecretSearch([secret]).hits(stored_files(world.process.state_dir))
    finally:
        log.unlink()
    assert hits == [f"file logs/planted.log: a known secret at byte {len('loaded the table with ')}"]


def test_the_excluded_stack_json_contains_a_secret(world):
    """The search excludes stack.json and Secrets Manager, because they must contain secrets."""
    excluded = Trace("stack.json", world.process.path.read_bytes())
    assert SecretSearch([world.stack.client_secret.get_secret_value()]).hits([excluded])
