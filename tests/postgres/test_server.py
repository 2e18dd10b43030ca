"""The tests' own PostgreSQL: fresh databases that nobody shares."""

import psycopg
import pytest
import sqlalchemy

pytestmark = pytest.mark.postgres


@pytest.mark.parametrize("turn", [1, 2])
def test_every_test_has_an_empty_database(postgres_url, turn):
    with psycopg.connect(postgres_url) as connection:
        connection.execute("CREATE TABLE once (x bigint)")
        (version,) = connection.execute("SHOW server_version_num").fetchone()
    assert int(version) >= 150000


def test_sqlalchemy_takes_the_url(postgres_url):
    engine = sqlalchemy.create_engine(postgres_url)
    with engine.connect() as connection:
        assert connection.execute(sqlalchemy.text("SELECT 1")).scalar() == 1
    engine.dispose()
