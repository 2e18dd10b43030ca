"""Faults that a test orders from the simulated API server.

A rule says which requests it is for and what becomes of them. The first rule that is for a request
and not used up decides. Chance is seeded, so that a run can be repeated.
"""

import random
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from kai_es.simulate.answers import ApiError, too_many_requests

ACTIONS: Final = ("error", "delay", "close", "lose")
"""What can become of a request.

error: answered with `code`, not executed.
delay: executed after `delay_ms`.
close: the connection is closed, not executed.
lose:  executed, then the connection is closed: the client cannot know the outcome.
"""


class Fault(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One rule. Unset conditions are met by every request.

    verb:        get, list, watch, create, update, patch, delete, deletecollection.
    resource:    `pods`, `queues.scheduling.run.ai`, …
    subresource: `binding`, `status`, …; "" = requests on the object itself.
    client:      text that the User-Agent contains.
    code, reason, message: of the answer of an `error`.
    skip:        let that many matching requests pass first.
    times:       how often the rule acts; None = for ever.
    probability: with which it acts.
    """

    action: str
    verb: str | None = None
    resource: str | None = None
    subresource: str | None = None
    namespace: str | None = None
    name: str | None = None
    client: str | None = None
    code: int = 429
    reason: str = ""
    message: str = "injected fault"
    retry_after_s: int = 1
    delay_ms: int = 0
    skip: int = 0
    times: int | None = None
    probability: float = 1.0
    acted: int = 0

    def __post_init__(self) -> None:
        if self.action not in ACTIONS:
            raise ValueError(f"action {self.action!r} is none of {', '.join(ACTIONS)}")

    def error(self) -> ApiError:
        """The answer of an `error`."""
        if self.code == 429:
            return too_many_requests(self.message, self.retry_after_s)
        reason = self.reason or _REASONS.get(self.code, "InternalError")
        return ApiError(self.code, reason, self.message, details={})


_REASONS: Final = {
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What rules look at."""

    verb: str
    resource: str
    subresource: str
    namespace: str
    name: str
    client: str


_EQUAL: Final = ("verb", "resource", "subresource", "namespace", "name")


class Faults:
    """The rules in force."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)
        self.rules: list[Fault] = []

    def replace(self, rules: Iterable[Fault], seed: int) -> None:
        """Put these rules in force, instead of all before."""
        self.rules = list(rules)
        self._random.seed(seed)

    def find(self, request: Request) -> Fault | None:
        """The rule that acts on this request; it counts as having acted."""
        for rule in self.rules:
            if not _is_for(rule, request):
                continue
            if rule.skip > 0:
                rule.skip -= 1
                continue
            if rule.times is not None and rule.acted >= rule.times:
                continue
            if rule.probability < 1.0 and self._random.random() >= rule.probability:
                continue
            rule.acted += 1
            return rule
        return None


def _is_for(rule: Fault, request: Request) -> bool:
    if rule.client is not None and rule.client not in request.client:
        return False
    wanted: Callable[[str], str | None] = lambda name: getattr(rule, name)  # noqa: E731
    return all(wanted(name) in (None, getattr(request, name)) for name in _EQUAL)
