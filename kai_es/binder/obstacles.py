"""Why a pod cannot be prepared for its node."""

from typing import Final

VOLUME: Final = "volume"
"""A claim of a volume is not as the decision saw it, or does not come to be bound."""
CLAIM: Final = "claim"
"""A claim on devices is not as the decision saw it."""


class ObstacleError(Exception):
    """What the decision built on is not so any more: the request fails, the group backs off.

    code: a closed set, part of the result and of the back-off.
    text: for people; names the object.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
