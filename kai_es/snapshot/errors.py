"""What stops a reader of `snapshot`."""


class BrokenHistoryError(Exception):
    """An accepted batch contradicts what the log said before: the reader stops and says so.

    No reader can go on: cursors that do not join, a time that falls, a cycle out of turn. It names
    the offset and what was expected there.
    """
