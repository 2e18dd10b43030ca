"""What a file or a log can be blamed for when past cycles are looked at."""


class ExportError(ValueError):
    """A file that is no exported log, or of a newer release; names what to do."""


class DamagedFileError(Exception):
    """A capture or exported log that was cut off or changed; names what to do."""


class NotReplayableError(Exception):
    """The log no longer has what a cycle saw; names the first cycle that can be replayed."""
