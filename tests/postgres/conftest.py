import pytest

from kai_es.storage import schema
from kai_es.storage.engine import connect_to


@pytest.fixture
def empty_database(postgres_url):
    """Engine of an empty database of its own."""
    engine = connect_to(postgres_url)
    yield engine
    engine.dispose()


@pytest.fixture
def database(empty_database):
    """Engine of a migrated database of its own."""
    schema.upgrade(empty_database)
    return empty_database
