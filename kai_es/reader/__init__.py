"""Readers of `snapshot`: records in order, the view that folds them, where to start.

In: the EventLog and CheckpointStore ports. Out: decoded batches, a `World` that follows the log.
Never: a write. Every service that needs to know what the log says has a `View`.
"""

from kai_es.reader.records import read_batches
from kai_es.reader.restore import nearest_world
from kai_es.reader.view import View

__all__ = ["View", "nearest_world", "read_batches"]
