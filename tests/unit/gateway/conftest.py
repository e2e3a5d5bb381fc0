"""What tests of several folders of the gateway use."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def quiet() -> Iterator[None]:
    """Thousands of warnings of random stories would be kept for the report."""
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)
