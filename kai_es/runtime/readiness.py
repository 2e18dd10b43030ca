"""Says on stderr what `/readyz` says, whenever that changes."""

import logging
import re
from collections.abc import Sequence
from typing import Final

from kai_es.ports.clock import Clock
from kai_es.runtime.part import Problems

logger = logging.getLogger(__name__)

LOOK_S: Final = 2.0
"""A problem that comes and goes within this time is not worth a line."""

_NUMBER: Final = re.compile(r"\d+")


async def tell_changes(problems: Problems, clock: Clock) -> None:
    """Log when the problems change, until cancelled. An age or a count that rises is no change."""
    told: Sequence[str] | None = None
    while True:
        await clock.sleep(LOOK_S)
        now = tuple(problems())
        seen = tuple(_NUMBER.sub("0", problem) for problem in now)
        if seen == told:
            continue
        if now:
            logger.warning("not ready", extra={"problem": "; ".join(now)})
        else:
            logger.info("ready")
        told = seen
