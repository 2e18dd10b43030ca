"""Times and durations as Kubernetes writes them, in milliseconds.

RFC 3339 for instants, Go's `time.Duration` text for spans. 0 = unset, as in `kube.objects`.
"""

import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import lru_cache
from typing import Final

from kai_es.kube.errors import InvalidObjectError

_RFC3339: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?"
    r"(?:Z|[+-][0-9]{2}:[0-9]{2})"
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DURATION: Final = re.compile(r"([+-]?)((?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:ns|us|µs|μs|ms|s|m|h))+)")
_DURATION_PART: Final = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_UNIT_MS: Final = {
    "ns": Fraction(1, 10**6),
    "us": Fraction(1, 1000),
    "µs": Fraction(1, 1000),
    "μs": Fraction(1, 1000),
    "ms": Fraction(1),
    "s": Fraction(1000),
    "m": Fraction(60_000),
    "h": Fraction(3_600_000),
}
_MAX_LEN: Final = 64  # a longer text is no duration anybody means
_DURATION_MS_MAX: Final = (2**63 - 1) // 10**6  # Go keeps nanoseconds in an int64
_CACHED: Final = 16_384  # creation times repeat within a second


def time_ms(text: str | None, *, what: str, field: str) -> int:
    """Milliseconds since the epoch of an RFC 3339 time; None or "" = 0.

    Raises:
        InvalidObjectError: not such a time.
    """
    if not text:
        return 0
    ms = _time_ms(text)
    if ms is None:
        raise InvalidObjectError(
            what, f"{field} is {text!r}, want an RFC 3339 time such as 2026-01-31T12:00:00Z"
        )
    return ms


def time_ms_or_unset(text: str | None) -> int:
    """As `time_ms`, but a text that is no time counts as unset (annotations anybody may write)."""
    return (_time_ms(text) or 0) if text else 0


@lru_cache(maxsize=_CACHED)
def _time_ms(text: str) -> int | None:
    if _RFC3339.fullmatch(text) is None:
        return None
    try:
        since = datetime.fromisoformat(text) - _EPOCH
    except (ValueError, OverflowError):  # 31 February; an offset that leaves year 1 to 9999
        return None
    return since.days * 86_400_000 + since.seconds * 1000 + since.microseconds // 1000


def duration_ms(text: str, *, what: str, field: str) -> int:
    """Milliseconds of a Go duration (`"1h30m"`, `"-1s"`, `"0"`), rounded away from zero.

    Away from zero, so that the sign survives: a negative grace period means "never".

    Raises:
        InvalidObjectError: not a duration, or one that Go cannot hold.
    """
    ms = _duration_ms(text)
    if ms is None:
        raise InvalidObjectError(what, f"{field} is {text!r}, want a duration such as 90s or 1h30m")
    return ms


@lru_cache(maxsize=_CACHED)
def _duration_ms(text: str) -> int | None:
    if text in ("0", "+0", "-0"):
        return 0
    match = _DURATION.fullmatch(text) if len(text) <= _MAX_LEN else None
    if match is None:
        return None
    total = Fraction(0)
    for number, unit in _DURATION_PART.findall(match[2]):
        total += Fraction(number) * _UNIT_MS[unit]
    ms = -(-total.numerator // total.denominator)
    if ms > _DURATION_MS_MAX:
        return None
    return -ms if match[1] == "-" else ms


def rfc3339(ms: int) -> str:
    """A moment as objects carry it: whole seconds, UTC."""
    return _rfc3339(ms // 1000)


@lru_cache(maxsize=_CACHED)
def _rfc3339(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def duration_text(ms: int) -> str:
    """A duration in Go's notation (`10m0s`, `1.5s`, `250ms`)."""
    if ms == 0:
        return "0s"
    sign, ms = ("-", -ms) if ms < 0 else ("", ms)
    if ms < 1000:
        return f"{sign}{ms}ms"
    hours, rest = divmod(ms, 3_600_000)
    minutes, rest = divmod(rest, 60_000)
    seconds = f"{rest / 1000:.3f}".rstrip("0").rstrip(".") + "s"
    if hours:
        return f"{sign}{hours}h{minutes}m{seconds}"
    return f"{sign}{minutes}m{seconds}" if minutes else f"{sign}{seconds}"
