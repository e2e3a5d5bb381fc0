"""Each test of this folder runs against the stand-in, and against a real Polaris if the environment names one."""

from collections.abc import Iterator

import pytest

from tests.contract.polaris.world import Polaris, PolarisView, real, stand_in


@pytest.fixture(scope="session", params=["stand-in", "stand-in-newer", "real"])
def polaris(request: pytest.FixtureRequest) -> Iterator[Polaris]:
    """A server; the real one is skipped unless POLARIS_URL, POLARIS_CREDENTIAL and POLARIS_WAREHOUSE are set."""
    if request.param.startswith("stand-in"):
        with stand_in(newer=request.param == "stand-in-newer") as server:
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
