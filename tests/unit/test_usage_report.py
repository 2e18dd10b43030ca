import datetime
import itertools
import json
from decimal import Decimal

import pytest

from kai_es.ports.reports import Bucket, By, ClusterSum, GroupSum, UsageSums
from kai_es.storage.cover import cover
from kai_es.usage.period import parse_time
from kai_es.usage.report import render
from kai_es.usage.units import unit_hours
from tests.books.story import GIB, GPU, HOUR, START

SUMS = UsageSums(
    start_ms=START,
    end_ms=START + 2 * HOUR,
    as_of=17,
    groups=[
        GroupSum(None, "team-b", "gpu", 0, 4 * GPU * HOUR, 2 * GPU * HOUR, 2 * GPU * HOUR),
        GroupSum(None, "", "memory", GIB * HOUR, GIB * HOUR // 2, 0, 0, unlimited=True),
    ],
    cluster=[
        ClusterSum(None, "gpu", 0, 16 * GPU * HOUR, 4 * GPU * HOUR, 12 * GPU * HOUR, 0, 0),
    ],
)


@pytest.mark.parametrize(
    ("amount", "resource", "hours"),
    [
        (4 * GPU * HOUR, "gpu", "4.0"),
        (1000 * HOUR, "cpu", "1.0"),
        (1500 * HOUR, "cpu", "1.5"),
        (GIB * HOUR // 4, "memory", "0.25"),
        (100 * GIB * HOUR, "memory", "100.0"),
        (GPU, "gpu", "0.000000278"),
        (0, "gpu", "0.0"),
        (10**40 * GPU * HOUR + GPU * HOUR // 2, "gpu", f"{10**40}.5"),
    ],
)
def test_unit_hours_are_decimals(amount, resource, hours):
    assert format(unit_hours(amount, resource), "f") == hours


def test_table_names_units_and_ends_with_the_cluster():
    text = render(SUMS, By.QUEUE, None, "table")
    head, units, _, columns, *rows = text.splitlines()
    assert head == "usage by queue, 2025-11-30T10:00:00Z to 2025-11-30T12:00:00Z"
    assert "gpu in GPU-hours" in units
    assert columns.split() == [
        *("group", "resource", "requested", "allocated", "quota", "over_quota", "idle", "down")
    ]
    assert [row.split() for row in rows] == [
        ["(none)", "memory", "1.5", "0.5", "unlimited", "0.0", "-", "-"],
        ["team-b", "gpu", "4.0", "4.0", "2.0", "2.0", "-", "-"],
        ["(cluster)", "gpu", "4.0", "4.0", "-", "-", "12.0", "0.0"],
    ]


def test_csv_has_one_line_per_group_and_resource():
    lines = render(SUMS, By.QUEUE, None, "csv").splitlines()
    assert lines == [
        "group,resource,requested,allocated,quota,over_quota,idle,down,capacity,over,unit",
        "(none),memory,1.5,0.5,unlimited,0.0,,,,,GiB-hours",
        "team-b,gpu,4.0,4.0,2.0,2.0,,,,,GPU-hours",
        "(cluster),gpu,4.0,4.0,,,12.0,0.0,16.0,0.0,GPU-hours",
    ]


def test_json_holds_numbers():
    document = json.loads(render(SUMS, By.QUEUE, Bucket.DAY, "json"), parse_float=Decimal)
    assert document["as_of"] == 17
    assert document["units"]["gpu"] == "GPU-hours"
    assert document["rows"][0] == {
        "bucket": None,
        "group": "(none)",
        "resource": "memory",
        "requested": Decimal("1.5"),
        "allocated": Decimal("0.5"),
        "quota": None,
        "over_quota": Decimal("0.0"),
    }
    assert document["cluster"][0]["idle"] == Decimal("12.0")


NOW = START + 5 * HOUR


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("now", NOW),
        ("2h", NOW - 2 * HOUR),
        ("2025-11-30T10:00:00Z", START),
        ("2025-11-30T11:00:00+01:00", START),
        ("2025-11-30", START - 10 * HOUR),
        ("2025-11-30T10:00", START),
    ],
)
def test_times(text, ms):
    assert parse_time(text, now_ms=NOW) == ms


@pytest.mark.parametrize("text", ["", "yesterday", "5y", "-1h", "2025-13-01"])
def test_what_is_no_time(text):
    with pytest.raises(ValueError, match=r"is no time: want 2026-03-01T08:00:00Z"):
        parse_time(text, now_ms=NOW)


def _t(text):
    return datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC)


def _pieces(lo, hi, *, hour=None, day=None, month=None, cut=None):
    stored = {"hour": hour and _t(hour), "day": day and _t(day), "month": month and _t(month)}
    found = list(cover(_t(lo), _t(hi), stored=stored, cut=cut))
    assert found[0].lo == _t(lo)
    assert found[-1].hi == _t(hi)
    assert all(a.hi == b.lo for a, b in itertools.pairwise(found))
    return [(p.level, p.lo.strftime("%m-%dT%H:%M"), p.hi.strftime("%m-%dT%H:%M")) for p in found]


def test_largest_stored_buckets_are_used_and_the_rest_is_live():
    found = _pieces(
        "2026-01-30T22:30",
        "2026-03-02T01:15",
        hour="2026-03-02T01:00",
        day="2026-03-02",
        month="2026-03-01",
    )
    assert found == [
        (None, "01-30T22:30", "01-30T23:00"),
        ("hour", "01-30T23:00", "01-31T00:00"),
        ("day", "01-31T00:00", "02-01T00:00"),
        ("month", "02-01T00:00", "03-01T00:00"),
        ("day", "03-01T00:00", "03-02T00:00"),
        ("hour", "03-02T00:00", "03-02T01:00"),
        (None, "03-02T01:00", "03-02T01:15"),
    ]


def test_nothing_stored_is_one_live_piece():
    assert _pieces("2026-01-30T22:30", "2026-03-02T01:15") == [(None, "01-30T22:30", "03-02T01:15")]


def test_live_pieces_end_at_the_bounds_of_buckets():
    assert _pieces("2026-01-30T22:30", "2026-02-02T00:00", hour="2026-01-30T23:00", cut="day") == [
        (None, "01-30T22:30", "01-31T00:00"),
        (None, "01-31T00:00", "02-01T00:00"),
        (None, "02-01T00:00", "02-02T00:00"),
    ]


def test_hours_are_asked_for_by_the_hour():
    found = _pieces(
        "2026-01-01",
        "2026-02-01",
        hour="2026-02-01",
        day="2026-02-01",
        month="2026-02-01",
        cut="hour",
    )
    assert found == [("hour", "01-01T00:00", "02-01T00:00")]
