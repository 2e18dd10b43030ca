"""The status of a BindRequest object after an attempt.

Our own requests have no back-off limit: one failure is final.

Reference: binder.md §6.3; pkg/binder/controllers/bindrequest_controller.go.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Attempted(NamedTuple):
    """status: as it is written; again_s: seconds until the next attempt, 0 = none is due."""

    status: dict[str, Any]
    again_s: int


def attempted(status: Mapping[str, Any], *, limit: int | None, error: str | None) -> Attempted:
    """The status after an attempt.

    Args:
        status: before it.
        limit: `spec.backoffLimit`.
        error: why it failed, None = it did not.
    """
    failed = int(status.get("failedAttempts") or 0)
    if error is None:
        return Attempted({**status, "phase": "Succeeded"}, 0)
    found = {**status, "phase": "Failed", "reason": error}
    if limit is None or limit <= failed:
        return Attempted(found, 0)
    return Attempted({**found, "failedAttempts": failed + 1}, 2**failed)
