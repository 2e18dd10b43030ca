"""Rows to columns, kept up to date by each batch; ranking and life cycle of rows. Pure.

In: batches of the topic `snapshot` (`World.apply`), or the rows of a checkpoint. Out: `Snapshot`,
which `decide` reads; checkpoints; what gate, explain and every projection ask of the log. Never: a
clock, I/O, a decision.

`World` is in `world`; its parts are in `chain` (accept rule), `ranking` (versions), `lifecycle` and
`requests`, `standing` (pod groups), `parking`, `liveness`, `reigns`.
"""
