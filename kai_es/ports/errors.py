"""What adapters raise. No library's exception leaves an adapter."""


class UnavailableError(Exception):
    """Broker, database or API server away or overloaded: the service retries with back-off."""


class FencedError(Exception):
    """A newer leader reigns, or an append's outcome is unknown: the process ends."""


class CorruptLogError(Exception):
    """A stored record fails its checksum: the reader stops; names file, topic and position."""


class ConflictError(Exception):
    """A precondition (uid, resourceVersion) of a write failed, HTTP 409."""


class GoneError(Exception):
    """The object is gone (404), or a watch position is (410)."""


class RefusedError(Exception):
    """The API server refused a write for good (400, 403, 413, 422, …)."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
