"""Each test of this folder runs against the stand-in, and against a real Polaris if the environment names one.

The stand-in keeps its state in memory and in the NoSQL persistence, and answers as each release does.
"""

from collections.abc import Callable, Iterator

import pytest

from infra.local.catalog.persisted import PersistedState
from infra.local.catalog.state import CatalogState, MemoryState
from polaris_persistence.backends.memory import MemoryBackend
from tests.contract.polaris.world import Polaris, PolarisView, real, stand_in

STATES: dict[str, Callable[[], CatalogState]] = {
    "memory": MemoryState,
    "persistence": lambda: PersistedState(MemoryBackend(), realm="POLARIS", catalog="lake"),
}
STAND_INS = {f"{state}{mood}": (state, bool(mood)) for state in STATES for mood in ("", "-newer")}
# Each state and each release once in a short run; a long one has all pairs.
SHORT = ("memory", "persistence-newer")
SERVERS = [name if name in SHORT else pytest.param(name, marks=pytest.mark.long) for name in STAND_INS]


@pytest.fixture(scope="session", params=[*SERVERS, "real"])
def polaris(request: pytest.FixtureRequest) -> Iterator[Polaris]:
    """A server; the real one is skipped unless POLARIS_URL, POLARIS_CREDENTIAL and POLARIS_WAREHOUSE are set."""
    if request.param in STAND_INS:
        state, newer = STAND_INS[request.param]
        with stand_in(newer=newer, state=STATES[state]()) as server:
            yield server
        return
    server = real()
    if server is None:
        pytest.skip("needs a Polaris: set POLARIS_URL, POLARIS_CREDENTIAL and POLARIS_WAREHOUSE")
    yield server


@pytest.fixture
def world(polaris: Polaris) -> Iterator[PolarisView]:
    """The server as one test uses it."""
    one = PolarisView(polaris)
    yield one
    one.close()
