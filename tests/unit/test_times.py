import pytest

from kai_es.kube.errors import InvalidObjectError
from kai_es.kube.times import duration_ms, time_ms, time_ms_or_unset


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        (None, 0),
        ("", 0),
        ("1970-01-01T00:00:00Z", 0),
        ("2026-01-01T00:00:00.123456789Z", 1_767_225_600_123),
        ("2026-01-01T02:00:00+02:00", 1_767_225_600_000),
        ("1969-12-31T23:59:59.9Z", -100),
    ],
)
def test_time(text, ms):
    assert time_ms(text, what="Pod a", field="t") == ms


@pytest.mark.parametrize(
    "bad", ["x", "2026-01-01", "2026-01-01T00:00:00", "2026-13-01T00:00:00Z", "20260101T000000Z"]
)
def test_time_refuses_what_go_refuses(bad):
    assert time_ms_or_unset(bad) == 0
    with pytest.raises(InvalidObjectError, match=r"Pod a: t is .*want an RFC 3339 time"):
        time_ms(bad, what="Pod a", field="t")


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("0", 0),
        ("1h30m", 5_400_000),
        ("-1.5h", -5_400_000),
        ("300ms", 300),
        ("2m0s", 120_000),
        (".5s", 500),
        ("1ns", 1),
        ("-1ns", -1),
        ("5us", 1),
        ("1µs", 1),
    ],
)
def test_duration(text, ms):
    assert duration_ms(text, what="Queue q", field="d") == ms


@pytest.mark.parametrize("bad", ["", "1", "h", "1x", "1h-1m", " 1s", "1 s", "9999999h", "." * 99])
def test_duration_refuses_what_go_refuses(bad):
    with pytest.raises(InvalidObjectError, match=r"Queue q: d is .*want a duration"):
        duration_ms(bad, what="Queue q", field="d")
