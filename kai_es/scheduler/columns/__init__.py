"""The columns of one shard, derived from the rows and kept up to date by what changed.

In: `kai_es.snapshot.snapshot.Snapshot`. Out: `Columns`, which a session opens on. They never
write to the rows, and nothing in them depends on the order in which rows arrived.
"""
