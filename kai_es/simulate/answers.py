"""Answers of the simulated API server: bodies, and errors as `Status` objects.

The wording and shape of each error is that of kube-apiserver, because clients parse them.

Reference: k8s.io/apimachinery/pkg/api/errors/errors.go.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from kai_es.simulate.kinds import Kind

EXPIRED_LIST: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can start "
    "a new list without the continue parameter, or use the continue token in this response to "
    "retrieve the remainder of the results. Continuing with the provided token results in an "
    "inconsistent list - objects that were created, modified, or deleted between the time the "
    "first chunk was returned and now may show up in the list."
)
PATCH_TYPES: Final = ("application/json-patch+json", "application/merge-patch+json")
APPLY_PATCH: Final = "application/apply-patch+yaml"
"""Named in errors as the real server names it; server-side apply is not simulated."""
MERGE_PATCH: Final = PATCH_TYPES[1]
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer. What it says of the object written is for the access ledger.

    name: "" where the request had it in its path.
    """

    status: int
    body: bytes
    uid: str = ""
    rv: int = 0
    name: str = ""
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()


class Cause(NamedTuple):
    """One reason of a 422: the field, the machine reason, and the text after the field."""

    field: str
    reason: str
    message: str


class ApiError(Exception):
    """A request that fails; `answer()` is what the client gets."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.metadata = metadata or {}
        self.headers = headers

    def status(self) -> dict[str, Any]:
        """The `Status` object."""
        out: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            out["reason"] = self.reason
        if self.details is not None:
            out["details"] = self.details
        return out | {"code": self.code}

    def answer(self) -> Answer:
        """The HTTP answer."""
        return Answer(self.code, msgspec.json.encode(self.status()), headers=self.headers)


def success(kind: Kind, name: str, uid: str) -> dict[str, Any]:
    """The `Status` that a delete of `kind` answers with."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": _details(kind, name) | {"uid": uid},
    }


def created() -> dict[str, Any]:
    """The `Status` that a binding or an eviction answers with."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "code": 201,
    }


def _details(kind: Kind, name: str) -> dict[str, Any]:
    out: dict[str, Any] = {"name": name} if name else {}
    if kind.group:
        out["group"] = kind.group
    return out | {"kind": kind.plural}


def not_found(kind: Kind, name: str) -> ApiError:
    """404."""
    return ApiError(
        404, "NotFound", f'{kind.resource} "{name}" not found', details=_details(kind, name)
    )


def already_exists(kind: Kind, name: str) -> ApiError:
    """409 of a create."""
    return ApiError(
        409,
        "AlreadyExists",
        f'{kind.resource} "{name}" already exists',
        details=_details(kind, name),
    )


def conflict(kind: Kind, name: str, why: str, subresource: str = "") -> ApiError:
    """409 of a write whose condition does not hold."""
    resource = f"{kind.resource}/{subresource}" if subresource else kind.resource
    details = _details(kind, name)
    if subresource:
        details["kind"] = resource
    return ApiError(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {resource} "{name}": {why}',
        details=details,
    )


def precondition(kind: Kind, name: str, why: str) -> ApiError:
    """409 of a delete whose precondition does not hold; names the kind, not the resource."""
    shown = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    details = _details(kind, name) | {"kind": kind.kind}
    message = f'Operation cannot be fulfilled on {shown} "{name}": {why}'
    return ApiError(409, "Conflict", message, details=details)


def storage_error(path: str, why: str) -> str:
    """How a precondition of a write is told: `path` is resource and key."""
    return (
        f"StorageError: invalid object, Code: 4, Key: /registry/{path}, ResourceVersion: 0, "
        f"AdditionalErrorMsg: Precondition failed: {why}"
    )


def modified(kind: Kind, name: str) -> ApiError:
    """409: optimistic concurrency lost."""
    return conflict(
        kind,
        name,
        "the object has been modified; please apply your changes to the latest version and try "
        "again",
    )


def invalid(kind: Kind, name: str, causes: Sequence[Cause]) -> ApiError:
    """422 with its causes."""
    return _invalid(kind.kind, kind.group, name, causes)


def invalid_options(causes: Sequence[Cause]) -> ApiError:
    """422 of the parameters of a list or watch."""
    return _invalid("ListOptions", "meta.k8s.io", "", causes)


def no_version(kind: Kind, name: str) -> ApiError:
    """422 of an update without resourceVersion where it is needed; names the resource."""
    cause = invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
    return _invalid(kind.plural, kind.group, name, [cause])


def other_kind(kind: Kind, said: str, name: str) -> ApiError:
    """422 of a custom object that says it is something else."""
    cause = invalid_value("kind", said, f"must be {kind.kind}")
    return _invalid(said, kind.group, name, [cause])


def _invalid(shown: str, group: str, name: str, causes: Sequence[Cause]) -> ApiError:
    texts = [f"{cause.field}: {cause.message}" for cause in causes]
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details: dict[str, Any] = {"name": name} if name else {}
    if group:
        details["group"] = group
    details |= {
        "kind": shown,
        "causes": [{"reason": c.reason, "message": c.message, "field": c.field} for c in causes],
    }
    qualified = f"{shown}.{group}" if group else shown
    return ApiError(422, "Invalid", f'{qualified} "{name}" is invalid: {text}', details=details)


def required(field: str, why: str = "") -> Cause:
    """A field that must be there."""
    return Cause(field, "FieldValueRequired", f"Required value: {why}" if why else "Required value")


def invalid_value(field: str, value: object, why: str) -> Cause:
    """A field with a value that is not allowed."""
    shown = msgspec.json.encode(value).decode()
    return Cause(field, "FieldValueInvalid", f"Invalid value: {shown}: {why}")


def forbidden_field(field: str, why: str) -> Cause:
    """A field that may not be set or changed."""
    return Cause(field, "FieldValueForbidden", f"Forbidden: {why}")


def forbidden(kind: Kind, name: str, why: str, causes: Sequence[Cause] = ()) -> ApiError:
    """403 of admission."""
    details = _details(kind, name)
    if causes:
        details["causes"] = [c._asdict() for c in causes]
    return ApiError(
        403, "Forbidden", f'{kind.resource} "{name}" is forbidden: {why}', details=details
    )


def anonymous(path: str, verb: str) -> ApiError:
    """403 of a request without a token."""
    return ApiError(
        403,
        "Forbidden",
        f'forbidden: User "system:anonymous" cannot {verb} path "{path}"',
        details={},
    )


def unauthorized() -> ApiError:
    """401 of a wrong token."""
    return ApiError(401, "Unauthorized", "Unauthorized")


def bad_request(message: str) -> ApiError:
    """400."""
    return ApiError(400, "BadRequest", message)


def unprocessable() -> ApiError:
    """422 of a JSON patch that cannot be applied; the real server tells no more either."""
    message = "the server rejected our request due to an error in our request"
    return ApiError(422, "Invalid", message, details={})


def method_not_allowed() -> ApiError:
    """405."""
    return ApiError(
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
        details={},
    )


def unsupported_patch(kind: Kind) -> ApiError:
    """415 of a patch."""
    if kind.custom:
        return unsupported_media_type((*PATCH_TYPES, APPLY_PATCH))
    return ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", details={})


def unsupported_media_type(accepted: Sequence[str]) -> ApiError:
    """415."""
    return ApiError(
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: "
        + ", ".join(accepted),
    )


def too_large(limit: int) -> ApiError:
    """413."""
    return ApiError(
        413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}", details={}
    )


def too_many_requests(message: str, retry_after_s: int, causes: Sequence[Cause] = ()) -> ApiError:
    """429, of the flow control or of a disruption budget."""
    details: dict[str, Any] = {}
    if causes:
        details["causes"] = [{"reason": c.reason, "message": c.message} for c in causes]
    headers: tuple[tuple[str, str], ...] = ()
    if retry_after_s:
        details["retryAfterSeconds"] = retry_after_s
        headers = (("Retry-After", str(retry_after_s)),)
    return ApiError(429, "TooManyRequests", message, details=details, headers=headers)


def expired(message: str, continue_token: str = "") -> ApiError:
    """410, of a list whose position is gone or of a watch."""
    metadata = {"continue": continue_token} if continue_token else None
    return ApiError(410, "Expired", message, metadata=metadata)


def too_old(asked: int, oldest: int) -> ApiError:
    """410: the position is older than the history that is kept."""
    return expired(f"too old resource version: {asked} ({oldest})")


def too_new(asked: int, current: int) -> ApiError:
    """504: the position is in the future."""
    return ApiError(
        504,
        "Timeout",
        f"Too large resource version: {asked}, current: {current}",
        details={
            "causes": [
                {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
            ],
            "retryAfterSeconds": 1,
        },
        headers=(("Retry-After", "1"),),
    )


def internal(message: str) -> ApiError:
    """500 of an error that the real server does not classify, so without a reason."""
    return ApiError(500, "", message)


def no_such_resource() -> ApiError:
    """404 of a resource that a served group and version does not have."""
    message = "the server could not find the requested resource"
    return ApiError(404, "NotFound", message, details={})


def no_such_path() -> Answer:
    """404 of a path that nothing serves; plain text, as the real one."""
    return Answer(404, b"404 page not found\n", content_type="text/plain; charset=utf-8")
