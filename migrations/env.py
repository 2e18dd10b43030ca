"""What alembic runs: the migrations on the connection that `kai_es.storage.schema` hands in."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
with context.begin_transaction():
    context.run_migrations()
