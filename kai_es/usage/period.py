"""Times as people write them on a command line."""

import datetime
import re
from typing import Final

_AGO: Final = re.compile(r"([0-9]{1,9})(s|m|h|d|w)")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def parse_time(text: str, *, now_ms: int) -> int:
    """Milliseconds since the epoch of a time.

    Args:
        text: RFC 3339 (`2026-03-01T08:00:00Z`), a day (`2026-03-01`, from its beginning in UTC),
            how long ago (`90m`, `24h`, `7d`), or `now`.
        now_ms: what "now" is: the time of the books.

    Raises:
        ValueError: none of these; names the text and what would be right.
    """
    if text == "now":
        return now_ms
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return max(now_ms - int(ago[1]) * _SECONDS[ago[2]] * 1000, 0)
    try:
        time = datetime.datetime.fromisoformat(text)
    except ValueError as exc:
        raise ValueError(
            f"{text!r} is no time: want 2026-03-01T08:00:00Z, 2026-03-01, 24h (ago) or now"
        ) from exc
    if time.tzinfo is None:
        time = time.replace(tzinfo=datetime.UTC)
    epoch = datetime.datetime.fromtimestamp(0, datetime.UTC)
    return max((time - epoch) // datetime.timedelta(milliseconds=1), 0)
