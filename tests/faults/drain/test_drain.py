"""A dropped schema drains at the speed of the cap, and no task fails by waiting."""

from delegation.tasks.life.model import Status
from delegation.tasks.life.policy import Policies, default_properties
from delegation.tasks.stores.memory import MemoryTaskStore
from tests.faults.drain.load import Load, drained
from tests.faults.drain.site import Site


def test_a_dropped_schema_drains_at_the_speed_of_the_cap() -> None:
    properties = {**default_properties(), "delegation.limits.all": "4"}
    site = Site(MemoryTaskStore(), Policies.from_properties(properties), lambdas=5)
    outcome = drained(site, [Load("sales", "lake", 300)], slots=4)
    assert outcome.statuses == {Status.SUCCESS: 300}
    assert outcome.took <= 1.10 * outcome.ideal
