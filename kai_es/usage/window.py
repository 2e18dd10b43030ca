"""Which history counts for fair share: `usageDBConfig.usageParams`. Reference: fairness.md §9.1."""

import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from kai_es.ports.stores import Window
from kai_es.usage.cron import Cron, CronError, parse_cron

WEEK_MS: Final = 7 * 24 * 3_600_000
FETCH_MS: Final = 60_000
STALE_MS: Final = 5 * 60_000
WAIT_MS: Final = 60_000
FIELDS: Final = frozenset(
    {
        *("halfLifePeriod", "windowSize", "windowType", "tumblingWindowStartTime", "cronString"),
        *("fetchInterval", "stalenessPeriod", "waitTimeout", "extraParams"),
    }
)
TYPES: Final = ("sliding", "tumbling", "cron")

_GO_UNITS: Final = {
    "ns": Fraction(1, 10**6),
    "us": Fraction(1, 10**3),
    "µs": Fraction(1, 10**3),
    "ms": Fraction(1),
    "s": Fraction(1000),
    "m": Fraction(60_000),
    "h": Fraction(3_600_000),
}
_GO: Final = re.compile(r"([+-]?)((?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|ms|s|m|h))+")
_GO_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_PROMETHEUS: Final = re.compile(
    r"(?:(\d+)y)?(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?"
)
_PROMETHEUS_MS: Final = (365 * 86_400_000, WEEK_MS, 86_400_000, 3_600_000, 60_000, 1000, 1)
_EPOCH: Final = datetime.datetime.fromtimestamp(0, datetime.UTC)


class UsageParamsError(ValueError):
    """A field of `usageParams` is wrong; names it, its value and what would be right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageParams:
    """History that counts. half_life_ms: None = no decay; anchor_ms: of tumbling windows."""

    half_life_ms: int | None = None
    window_ms: int = WEEK_MS
    kind: str = "sliding"
    anchor_ms: int = 0
    cron: Cron | None = None
    fetch_ms: int = FETCH_MS
    stale_ms: int = STALE_MS
    wait_ms: int = WAIT_MS

    def window(self, now_ms: int) -> Window:
        """What a query at `now_ms` sums over; an empty window starts at `now_ms`."""
        return Window(self._start(now_ms), self.half_life_ms)

    def _start(self, now_ms: int) -> int:
        if self.kind == "cron":
            assert self.cron is not None
            now = _EPOCH + datetime.timedelta(milliseconds=now_ms)
            tick = self.cron.previous(now)
            return (tick - _EPOCH) // datetime.timedelta(milliseconds=1) if tick else now_ms
        if self.kind == "sliding":
            return max(now_ms - self.window_ms, 0)
        if self.anchor_ms >= now_ms:
            return now_ms
        # the latest boundary strictly before now
        return self.anchor_ms + (now_ms - self.anchor_ms - 1) // self.window_ms * self.window_ms


def usage_params(config: Mapping[str, Any] | None) -> UsageParams | None:
    """The parameters in a `usageDBConfig`; None = no history is used.

    The reference's client settings (`clientType`, `connectionString`, `extraParams`) are of no
    account: the books are the source.

    Raises:
        UsageParamsError: names the field and what would be right.
    """
    if config is None:
        return None
    raw = config.get("usageParams") or {}
    if not isinstance(raw, Mapping):
        raise UsageParamsError(f"usageDBConfig.usageParams is {raw!r}, want a mapping")
    unknown = sorted(set(raw) - FIELDS)
    if unknown:
        raise UsageParamsError(
            f"usageDBConfig.usageParams has no field {unknown[0]!r}; known: "
            f"{', '.join(sorted(FIELDS))}"
        )
    half_life = go_duration_ms(raw, "halfLifePeriod", default=0)
    fetch_ms = go_duration_ms(raw, "fetchInterval", default=FETCH_MS)
    if fetch_ms <= 0:
        raise _wrong("fetchInterval", raw["fetchInterval"], "a positive duration such as 1m")
    kind = raw.get("windowType") or "sliding"
    if kind not in TYPES:
        raise _wrong("windowType", kind, f"one of {', '.join(TYPES)}")
    return UsageParams(
        half_life_ms=half_life if half_life > 0 else None,
        window_ms=_window_size(raw, kind),
        kind=kind,
        anchor_ms=_anchor(raw) if kind == "tumbling" else 0,
        cron=_cron(raw) if kind == "cron" else None,
        fetch_ms=fetch_ms,
        stale_ms=max(go_duration_ms(raw, "stalenessPeriod", default=STALE_MS), fetch_ms),
        wait_ms=go_duration_ms(raw, "waitTimeout", default=WAIT_MS),
    )


def go_duration_ms(raw: Mapping[str, Any], field: str, *, default: int) -> int:
    """A duration such as `1h30m`, in ms, cut to whole ones."""
    value = raw.get(field)
    if value is None:
        return default
    text = str(value)
    match = _GO.fullmatch(text)
    if text == "0":
        return 0
    if match is None:
        raise _wrong(field, value, "a duration such as 90s, 10m or 168h")
    total = sum(Fraction(n) * _GO_UNITS[unit] for n, unit in _GO_PART.findall(text))
    return int(-total if match[1] == "-" else total)


def _window_size(raw: Mapping[str, Any], kind: str) -> int:
    value = raw.get("windowSize")
    if value is None:
        return WEEK_MS
    text = str(value)
    match = _PROMETHEUS.fullmatch(text)
    if text == "0":
        size = 0
    elif match is None or not text:
        raise _wrong("windowSize", value, "a duration such as 1w, 2d or 12h")
    else:
        size = sum(int(n) * ms for n, ms in zip(match.groups(), _PROMETHEUS_MS, strict=True) if n)
    if kind == "tumbling" and size <= 0:
        raise _wrong("windowSize", value, "more than 0 for tumbling windows")
    return size


def _anchor(raw: Mapping[str, Any]) -> int:
    value = raw.get("tumblingWindowStartTime")
    if not value:
        raise _wrong("tumblingWindowStartTime", value, "a time for windowType tumbling")
    try:
        time = datetime.datetime.fromisoformat(str(value))
    except ValueError as exc:
        raise _wrong("tumblingWindowStartTime", value, "a time like 2026-01-01T00:00:00Z") from exc
    if time.tzinfo is None:
        time = time.replace(tzinfo=datetime.UTC)
    return (time - _EPOCH) // datetime.timedelta(milliseconds=1)


def _cron(raw: Mapping[str, Any]) -> Cron:
    value = raw.get("cronString") or ""
    try:
        return parse_cron(str(value))
    except CronError as exc:
        raise _wrong("cronString", value, f"a cron expression ({exc})") from exc


def _wrong(field: str, value: object, want: str) -> UsageParamsError:
    return UsageParamsError(f"usageDBConfig.usageParams.{field} is {value!r}, want {want}")
