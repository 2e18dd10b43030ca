import datetime

import pytest

from kai_es.usage.cron import CronError, parse_cron
from kai_es.usage.window import UsageParamsError, usage_params

HOUR = 3_600_000


def at(text):
    time = datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC)
    return int(time.timestamp() * 1000)


def start(now, **params):
    return usage_params({"usageParams": params}).window(at(now)).start_ms


@pytest.mark.parametrize(
    ("cron", "now", "expected"),
    [
        ("0 * * * *", "2025-01-15T14:30:00", "2025-01-15T14:00:00"),
        ("0 * * * *", "2025-01-15T14:00:00", "2025-01-15T13:00:00"),
        ("0 0 * * *", "2025-01-15T10:30:00", "2025-01-15T00:00:00"),
        ("0 0 * * *", "2025-01-15T23:59:59", "2025-01-15T00:00:00"),
        ("0 */6 * * *", "2025-01-15T10:00:00", "2025-01-15T06:00:00"),
        ("0 */6 * * *", "2025-01-15T12:00:00", "2025-01-15T06:00:00"),
        ("0 12 * * 1", "2025-01-15T15:00:00", "2025-01-13T12:00:00"),
        ("0 0 1 * *", "2025-03-31T23:00:00", "2025-03-01T00:00:00"),
        ("*/15 * * * *", "2025-01-15T14:37:00", "2025-01-15T14:30:00"),
        ("*/15 * * * *", "2025-01-15T14:45:00", "2025-01-15T14:30:00"),
        # irregular: the true previous one, where the reference is wrong
        ("0 9-17 * * 1-5", "2025-01-13T08:59:00", "2025-01-10T17:00:00"),
        ("@weekly", "2025-01-15T14:45:00", "2025-01-12T00:00:00"),
        ("0 0 L * *", "2025-03-15T00:00:00", "2025-02-28T00:00:00"),
        ("0 0 * * 5L", "2025-03-15T00:00:00", "2025-02-28T00:00:00"),
        ("0 0 * * MON#2", "2025-03-15T00:00:00", "2025-03-10T00:00:00"),
        ("0 0 15W * *", "2025-03-20T00:00:00", "2025-03-14T00:00:00"),
        ("0 0 13 * FRI", "2025-01-16T00:00:00", "2025-01-13T00:00:00"),
        ("0 0 1 JAN * 2024", "2025-01-16T00:00:00", "2024-01-01T00:00:00"),
        ("30 0 12 * * ? *", "2025-01-16T13:00:00", "2025-01-16T12:00:30"),
        ("0 0 29 2 *", "2025-01-16T13:00:00", "2024-02-29T00:00:00"),
    ],
)
def test_cron_windows_begin_at_the_last_tick_strictly_before(cron, now, expected):
    assert start(now, windowType="cron", cronString=cron) == at(expected)


def test_cron_that_never_was_due_is_an_empty_window():
    now = "2025-01-16T13:00:00"
    assert start(now, windowType="cron", cronString="0 0 1 1 * 2099") == at(now)


@pytest.mark.parametrize(
    ("size", "anchor", "now", "expected"),
    [
        ("1h", "10:00:00", "12:30:00", "12:00:00"),
        ("1h", "10:00:00", "13:00:00", "12:00:00"),
        ("1h", "10:00:00", "13:00:01", "13:00:00"),
        ("15m", "14:00:00", "14:37:00", "14:30:00"),
        ("1h", "10:00:00", "10:00:00", "10:00:00"),
        ("1h", "10:15:30", "12:45:30", "12:15:30"),
        ("1h", "18:00:00", "12:45:30", "12:45:30"),
    ],
)
def test_tumbling_windows(size, anchor, now, expected):
    found = start(
        f"2025-01-18T{now}",
        windowType="tumbling",
        windowSize=size,
        tumblingWindowStartTime=f"2025-01-18T{anchor}Z",
    )
    assert found == at(f"2025-01-18T{expected}")


def test_weekly_tumbling_window():
    found = start(
        "2025-01-18T12:00:00",
        windowType="tumbling",
        windowSize="168h",
        tumblingWindowStartTime="2025-01-01T00:00:00Z",
    )
    assert found == at("2025-01-15T00:00:00")


@pytest.mark.parametrize(
    ("size", "hours"), [(None, 168), ("1w", 168), ("1d12h", 36), ("0", 0), ("1y", 8760)]
)
def test_sliding_windows(size, hours):
    now = "2025-06-18T12:00:00"
    params = {} if size is None else {"windowSize": size}
    assert start(now, **params) == at(now) - hours * HOUR


@pytest.mark.parametrize(
    ("text", "ms"),
    [("30m", 1_800_000), ("1h30m", 5_400_000), ("1.5h", 5_400_000), ("0", None), ("-1h", None)],
)
def test_half_life(text, ms):
    assert usage_params({"usageParams": {"halfLifePeriod": text}}).half_life_ms == ms


def test_defaults():
    assert usage_params(None) is None
    params = usage_params({"clientType": "prometheus", "connectionString": "http://x"})
    assert (params.half_life_ms, params.kind) == (None, "sliding")
    assert (params.fetch_ms, params.stale_ms, params.wait_ms) == (60_000, 300_000, 60_000)
    slow = usage_params({"usageParams": {"fetchInterval": "10m"}})
    assert slow.stale_ms == 600_000


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"windowType": "rolling"}, "windowType"),
        ({"windowSize": ""}, "windowSize"),
        ({"windowSize": "1h1w"}, "windowSize"),
        ({"windowType": "tumbling"}, "tumblingWindowStartTime"),
        (
            {
                "windowType": "tumbling",
                "windowSize": "0",
                "tumblingWindowStartTime": "2025-01-01T00:00:00Z",
            },
            "windowSize",
        ),
        ({"windowType": "cron", "cronString": "0 0 *"}, "cronString"),
        ({"fetchInterval": "0"}, "fetchInterval"),
        ({"halfLifePeriod": "a week"}, "halfLifePeriod"),
        ({"halfLive": "1h"}, "halfLive"),
    ],
)
def test_wrong_parameters_are_named(params, field):
    with pytest.raises(UsageParamsError, match=field):
        usage_params({"usageParams": params})


@pytest.mark.parametrize(
    "text", ["", "* * * *", "61 * * * *", "* * * FOO *", "5-1 * * * *", "*/0 * * * *", "a b c d e"]
)
def test_what_is_no_cron(text):
    with pytest.raises(CronError):
        parse_cron(text)
