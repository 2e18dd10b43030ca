"""How PostgreSQL should look rows up."""

import sqlalchemy
from sqlalchemy import Connection


def by_key(connection: Connection) -> None:
    """In this transaction, join by index: our arrays are short, which the planner cannot know."""
    connection.execute(
        sqlalchemy.text(
            "SELECT set_config('enable_hashjoin', 'off', true),"
            " set_config('enable_mergejoin', 'off', true),"
            " set_config('enable_seqscan', 'off', true)"
        )
    )
