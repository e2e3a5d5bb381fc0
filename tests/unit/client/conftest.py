import asyncio
from collections.abc import Callable, Iterator

import pytest

from tests.unit.client.service import Service


@pytest.fixture(scope="session")
def loop() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(params=["blocking", "asyncio"])
def service_with(request: pytest.FixtureRequest, loop: asyncio.Runner) -> Callable[..., Service]:
    """Make a service with these properties; the suite runs with both clients."""
    return lambda properties=None: Service(properties, loop=loop if request.param == "asyncio" else None)


@pytest.fixture
def service(service_with: Callable[..., Service]) -> Service:
    return service_with()
