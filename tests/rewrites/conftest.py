from collections.abc import Iterator

import pytest

from tests.rewrites.world import RewriteWorld, rewrite_world


@pytest.fixture(scope="session")
def world() -> Iterator[RewriteWorld]:
    with rewrite_world() as found:
        yield found
