"""Alembic migrations of the Postgres side."""
