"""Adapters of EventLog and Leadership: memory, SQLite, Kafka."""
