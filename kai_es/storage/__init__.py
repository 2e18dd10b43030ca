"""Adapters of the Postgres side (SQLAlchemy Core)."""
