"""What adapters raise. No library's exception leaves an adapter."""


class UnavailableError(Exception):
    """Broker, database or API server away or overloaded: the service retries with back-off.

    The outcome of a write that ends so is unknown. `status`, `reason`: the API server's answer if
    there was one, 0 = none came; `retry_after_s`: how long it asks to be left alone.
    """

    def __init__(
        self, message: str = "", *, status: int = 0, reason: str = "", retry_after_s: float = 0.0
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after_s = retry_after_s


class FencedError(Exception):
    """A newer leader reigns, or an append's outcome is unknown: the process ends."""


class CorruptLogError(Exception):
    """A stored record fails its checksum: the reader stops; names file, topic and position."""


class ConfigError(ValueError):
    """Settings that cannot work: names the setting or file, and the fix. Doors exit 2."""


class AnswerError(Exception):
    """No. `status` is HTTP's, 0 if no server was asked; `reason` is Kubernetes' word for it."""

    def __init__(self, message: str = "", *, status: int = 0, reason: str = "") -> None:
        super().__init__(f"{status} {reason}: {message}" if status else message)
        self.status = status
        self.reason = reason
        self.message = message


class ConflictError(AnswerError):
    """A precondition (uid, resourceVersion) of a write failed, HTTP 409.

    Of a create: there is an object of this name (reason `AlreadyExists`).
    """


class BudgetError(AnswerError):
    """A disruption budget does not allow this eviction at present (429)."""


class GoneError(AnswerError):
    """The object or its kind is gone (404), or a list, watch or log position is (410)."""


class RefusedError(AnswerError):
    """The API server refused a request for good (400, 403, 413, 422, …)."""


class DeniedError(RefusedError):
    """The API server's rules (RBAC) do not allow us this; the message names the rule to add."""
