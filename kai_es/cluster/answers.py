"""Answers of the API server and failures of the transport, as the errors of `ports.errors`."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NoReturn

import aiohttp
import msgspec

from kai_es.ports.errors import (
    AnswerError,
    BudgetError,
    ConflictError,
    DeniedError,
    GoneError,
    RefusedError,
    UnavailableError,
)

TRANSPORT: Final[Mapping[type[Exception], type[Exception]]] = MappingProxyType(
    {
        aiohttp.ClientError: UnavailableError,  # connection, TLS, payload, response, redirects
        TimeoutError: UnavailableError,
        OSError: UnavailableError,  # what aiohttp does not wrap, e.g. a reset while sending
        msgspec.DecodeError: UnavailableError,  # a proxy's error page, a body cut off
    }
)
"""Foreign exceptions (subclasses included) to ours. Nothing else leaves the transport."""

FOREIGN: Final = tuple(TRANSPORT)

ANSWERS: Final[Mapping[int, type[AnswerError]]] = MappingProxyType(
    {404: GoneError, 409: ConflictError, 410: GoneError}
)
"""Statuses that say no in a way of their own; other 4xx are `RefusedError`."""

AGAIN: Final = frozenset({401, 408, 425, 429})
"""4xx that may be different next time: credentials are renewed, load goes away."""

MESSAGE_MAX: Final = 500  # characters of an answer that are kept


class Status(msgspec.Struct):
    """`Status` of the Kubernetes API."""

    reason: str | None = None
    message: str | None = None
    code: int | None = None
    details: dict[str, Any] | None = None


def raise_foreign(exc: Exception, *, doing: str) -> NoReturn:
    """Raise ours for an exception of `FOREIGN`."""
    for foreign, ours in TRANSPORT.items():
        if isinstance(exc, foreign):
            text = str(exc) or type(exc).__name__
            raise ours(f"{doing}: {text[:MESSAGE_MAX]}") from exc
    raise AssertionError(f"{type(exc)} is not in TRANSPORT")


def raise_answer(
    status: int, body: bytes, *, doing: str, retry_after: str | None = None
) -> NoReturn:
    """Raise ours for an HTTP answer that is not 2xx."""
    said = _status_of(body)
    reason = said.reason or _WORD.get(status, "Unknown")
    message = f"{doing}: {said.message or ''}"[:MESSAGE_MAX]
    if status == 429 and (budget := _budget(said)):
        message = f"{message} {budget}"[:MESSAGE_MAX]
        raise BudgetError(message, status=status, reason=reason)
    if status in AGAIN or status >= 500:
        seconds = retry_after if retry_after and retry_after.isdigit() else "0"
        raise UnavailableError(
            message, status=status, reason=reason, retry_after_s=min(float(seconds), 60.0)
        )
    if status == 403 and (denied := _DENIED.search(said.message or "")):
        verb, resource, group = denied.groups()
        rule = f'{{apiGroups: ["{group}"], resources: [{resource}], verbs: [{verb}]}}'
        text = f"{message}; add to our role (deploy/rbac): {rule}"
        raise DeniedError(text, status=status, reason=reason)
    raise ANSWERS.get(status, RefusedError)(message, status=status, reason=reason)


def _status_of(body: bytes) -> Status:
    try:
        return msgspec.json.decode(body, type=Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Status(message=body[:MESSAGE_MAX].decode("utf-8", "replace"))


def _budget(said: Status) -> str:
    """What a disruption budget says, "" = none is in the way: the server has too much to do."""
    causes = (said.details or {}).get("causes") or ()
    found = [str(c.get("message", "")) for c in causes if c.get("reason") == "DisruptionBudget"]
    return "; ".join(found)


_DENIED: Final = re.compile(r'cannot (\w+) resource "([^"]+)" in API group "([^"]*)"')
"""How the API server says that a rule is missing; other 403 come from admission."""

_WORD: Final = {401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 409: "Conflict"}
