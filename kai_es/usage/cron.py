"""The last time a cron expression was due. Reference: fairness.md §9.5.

Five fields (minute hour day month weekday), six with a year behind, seven with seconds in front;
names, lists, ranges, steps, `L`, `W`, `#` and the macros `@hourly` … `@yearly`. In UTC. Where both
day and weekday are given, either is enough.
"""

import calendar
import datetime
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

YEAR_MIN: Final = 1970
YEAR_MAX: Final = 2199

_MACROS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS: Final = {
    name: n + 1
    for n, name in enumerate(
        ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
    )
}
_WEEKDAYS: Final = {
    name: n for n, name in enumerate(["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"])
}
_ITEM: Final = re.compile(r"(\*|\?|(\w+)(?:-(\w+))?)(?:/(\d+))?")
_LAST_WEEKDAY: Final = re.compile(r"(\w+)L")
_NTH_WEEKDAY: Final = re.compile(r"(\w+)#([1-5])")
_NEAREST: Final = re.compile(r"(\d{1,2}|L)W")

DayRule = Callable[[datetime.date], bool]


class CronError(ValueError):
    """Not a cron expression; names the field."""


@dataclass(frozen=True, slots=True)
class Cron:
    """A parsed expression. `previous` is what it is for."""

    text: str
    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    months: tuple[int, ...]
    years: tuple[int, ...]
    is_day: DayRule

    def previous(self, before: datetime.datetime) -> datetime.datetime | None:
        """The latest time it was due strictly before `before`; None = never."""
        day = before.date()
        while day.year >= self.years[0]:
            if day.year not in self.years or day.month not in self.months:
                day = day.replace(day=1) - datetime.timedelta(days=1)
                continue
            if self.is_day(day):
                found = self._latest(day, before)
                if found is not None:
                    return found
            day -= datetime.timedelta(days=1)
        return None

    def _latest(self, day: datetime.date, before: datetime.datetime) -> datetime.datetime | None:
        for hour in reversed(self.hours):
            for minute in reversed(self.minutes):
                for second in reversed(self.seconds):
                    time = datetime.time(hour, minute, second, tzinfo=datetime.UTC)
                    found = datetime.datetime.combine(day, time)
                    if found < before:
                        return found
        return None


def parse_cron(text: str) -> Cron:
    """Parse an expression.

    Raises:
        CronError: names the field and its value.
    """
    fields = _MACROS.get(text.strip().lower(), text).upper().split()
    if len(fields) < 5:
        raise CronError(f"cron {text!r} has {len(fields)} fields, want 5 to 7")
    seconds = fields.pop(0) if len(fields) >= 7 else "0"
    minute, hour, day, month, weekday, *rest = fields
    year = rest[0] if rest else "*"
    return Cron(
        text=text,
        seconds=_numbers(seconds, "second", 0, 59),
        minutes=_numbers(minute, "minute", 0, 59),
        hours=_numbers(hour, "hour", 0, 23),
        months=_numbers(month, "month", 1, 12, _MONTHS),
        years=_numbers(year, "year", YEAR_MIN, YEAR_MAX),
        is_day=_days(day, weekday),
    )


def _days(day: str, weekday: str) -> DayRule:
    by_day, by_weekday = _day_rules(day), _weekday_rules(weekday)
    if by_day is None and by_weekday is None:
        return lambda date: True
    rules = [rule for rule in (by_day, by_weekday) if rule is not None]
    return lambda date: any(rule(date) for rule in rules)


def _day_rules(field: str) -> DayRule | None:
    """Rule of the day of the month; None = every day."""
    if field in ("*", "?"):
        return None
    rules: list[DayRule] = []
    for item in field.split(","):
        nearest = _NEAREST.fullmatch(item)
        if item == "L":
            rules.append(lambda date: date.day == _last_day(date))
        elif nearest is not None:
            rules.append(_nearest_workday(nearest[1]))
        else:
            rules.append(_among(_numbers(item, "day", 1, 31)))
    return lambda date: any(rule(date) for rule in rules)


def _weekday_rules(field: str) -> DayRule | None:
    """Rule of the day of the week, 0 and 7 = Sunday; None = every day."""
    if field in ("*", "?"):
        return None
    rules: list[DayRule] = []
    for item in field.split(","):
        last, nth = _LAST_WEEKDAY.fullmatch(item), _NTH_WEEKDAY.fullmatch(item)
        if last is not None:
            rules.append(_last_weekday(_weekday(last[1])))
        elif nth is not None:
            rules.append(_nth_weekday(_weekday(nth[1]), int(nth[2])))
        else:
            found = {n % 7 for n in _numbers(item, "weekday", 0, 7, _WEEKDAYS)}
            rules.append(_on_weekdays(found))
    return lambda date: any(rule(date) for rule in rules)


def _among(days: tuple[int, ...]) -> DayRule:
    return lambda date: date.day in days


def _nearest_workday(day: str) -> DayRule:
    """The weekday nearest to a day of the month, within that month."""

    def rule(date: datetime.date) -> bool:
        last = _last_day(date)
        wanted = date.replace(day=last if day == "L" else min(int(day), last))
        weekday = wanted.isoweekday()
        if weekday == 6:
            step = -1 if wanted.day > 1 else 2
        elif weekday == 7:
            step = 1 if wanted.day < last else -2
        else:
            step = 0
        return date == wanted + datetime.timedelta(days=step)

    return rule


def _on_weekdays(weekdays: set[int]) -> DayRule:
    return lambda date: date.isoweekday() % 7 in weekdays


def _last_weekday(weekday: int) -> DayRule:
    return lambda date: date.isoweekday() % 7 == weekday and date.day > _last_day(date) - 7


def _nth_weekday(weekday: int, nth: int) -> DayRule:
    return lambda date: date.isoweekday() % 7 == weekday and (date.day - 1) // 7 == nth - 1


def _weekday(name: str) -> int:
    return _numbers(name, "weekday", 0, 7, _WEEKDAYS)[0] % 7


def _last_day(date: datetime.date) -> int:
    return calendar.monthrange(date.year, date.month)[1]


def _numbers(
    field: str, what: str, low: int, high: int, names: dict[str, int] | None = None
) -> tuple[int, ...]:
    found: set[int] = set()
    for item in field.split(","):
        match = _ITEM.fullmatch(item)
        if match is None:
            raise CronError(f"cron field {what}: {item!r} is no number, name, range or step")
        step = int(match[4] or 1)
        if match[2] is None:
            start, end = low, high
        else:
            start = _number(match[2], what, low, high, names)
            has_end = match[3] is not None
            end = _number(match[3], what, low, high, names) if has_end else start
            if match[4] and not has_end:
                end = high
        if end < start or step < 1:
            raise CronError(f"cron field {what}: {item!r} is an empty range")
        found.update(range(start, end + 1, step))
    return tuple(sorted(found))


def _number(text: str, what: str, low: int, high: int, names: dict[str, int] | None) -> int:
    value = (names or {}).get(text[:3]) if not text.isdigit() else int(text)
    if value is None or not low <= value <= high:
        raise CronError(f"cron field {what}: {text!r} is not within {low} to {high}")
    return value
