"""Adapters of `ports.eventlog`: memory, SQLite, Kafka.

In: envelopes and keys. Out: stored entries, in order, from committed appends only. Never: a look
into a record's data, or a library's exception.
"""
