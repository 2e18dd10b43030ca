import logging

import pytest


@pytest.fixture(autouse=True)
def _quiet():
    """kafka-python tells of every lost connection, and here they are lost on purpose."""
    logger = logging.getLogger("kafka")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)
