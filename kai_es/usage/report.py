"""`report usage` as a table, CSV or JSON."""

import csv
import datetime
import io
from decimal import Decimal
from typing import Any, Final

import msgspec

from kai_es.ports.reports import Bucket, By, ClusterSum, GroupSum, UsageSums
from kai_es.usage.units import RESOURCES, UNITS, unit_hours

FORMS: Final = ("table", "json", "csv")
CLUSTER: Final = "(cluster)"
NO_GROUP: Final = "(none)"
UNLIMITED: Final = "unlimited"
COLUMNS: Final = (
    *("group", "resource", "requested", "allocated", "quota", "over_quota", "idle", "down"),
    *("capacity", "over"),
)
_TABLE: Final = COLUMNS[:8]

Line = dict[str, Any]
_encoder: Final = msgspec.json.Encoder(decimal_format="number")


def render(sums: UsageSums, by: By, bucket: Bucket | None, form: str) -> str:
    """The report in a form: table, csv or json."""
    if form == "json":
        return as_json(sums, by, bucket)
    return as_csv(sums, bucket) if form == "csv" else as_table(sums, by, bucket)


def lines(sums: UsageSums) -> list[Line]:
    """One line per group and resource, then one per resource for the cluster.

    A value that has no meaning for a line is None. requested = demand: held and waited for.
    """
    groups = sorted(sums.groups, key=_order)
    cluster = sorted(sums.cluster, key=lambda s: (s.bucket_ms or 0, RESOURCES.index(s.resource)))
    return [*map(_group, groups), *map(_cluster, cluster)]


def as_table(sums: UsageSums, by: By, bucket: Bucket | None) -> str:
    """For people."""
    columns = (("bucket",) if bucket is not None else ()) + _TABLE
    rows = [columns, *([_shown(line.get(name)) for name in columns] for line in lines(sums))]
    widths = [max(len(row[n]) for row in rows) for n in range(len(columns))]
    n_text = columns.index("requested")
    units = ", ".join(f"{name} in {unit}" for name, unit in UNITS.items())
    text = [
        f"usage by {by.value}, {_time(sums.start_ms)} to {_time(sums.end_ms)}",
        f"{units}; requested = allocated + waiting",
        "",
    ]
    for row in rows:
        cells = [
            cell.ljust(width) if n < n_text else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        text.append("  ".join(cells).rstrip())
    return "\n".join(text) + "\n"


def as_csv(sums: UsageSums, bucket: Bucket | None) -> str:
    """One line per group and resource; the cluster's lines have the group `(cluster)`."""
    columns = (("bucket",) if bucket is not None else ()) + COLUMNS
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow((*columns, "unit"))
    for line in lines(sums):
        writer.writerow((*(_plain(line.get(name)) for name in columns), UNITS[line["resource"]]))
    return out.getvalue()


def as_json(sums: UsageSums, by: By, bucket: Bucket | None) -> str:
    """One object; numbers are unit-hours."""
    found = lines(sums)
    document = {
        "by": by.value,
        "bucket": bucket.value if bucket is not None else None,
        "from": _time(sums.start_ms),
        "to": _time(sums.end_ms),
        "as_of": sums.as_of,
        "units": UNITS,
        "rows": [_row(line, bucket) for line in found if line["group"] != CLUSTER],
        "cluster": [_row(line, bucket) for line in found if line["group"] == CLUSTER],
    }
    return _encoder.encode(document).decode() + "\n"


def _group(value: GroupSum) -> Line:
    unit = value.resource
    return {
        "bucket": _time(value.bucket_ms) if value.bucket_ms is not None else None,
        "group": value.group or NO_GROUP,
        "resource": unit,
        "requested": unit_hours(value.waiting + value.allocated, unit),
        "allocated": unit_hours(value.allocated, unit),
        "quota": UNLIMITED if value.unlimited else _hours(value.quota, unit),
        "over_quota": _hours(value.over_quota, unit),
        "idle": _hours(value.idle, unit),
        "down": _hours(value.down, unit),
        "capacity": None,
        "over": None,
    }


def _cluster(value: ClusterSum) -> Line:
    unit = value.resource
    return {
        "bucket": _time(value.bucket_ms) if value.bucket_ms is not None else None,
        "group": CLUSTER,
        "resource": unit,
        "requested": unit_hours(value.waiting + value.allocated, unit),
        "allocated": unit_hours(value.allocated, unit),
        "quota": None,
        "over_quota": None,
        "idle": unit_hours(value.idle, unit),
        "down": unit_hours(value.down, unit),
        "capacity": unit_hours(value.capacity, unit),
        "over": unit_hours(value.over, unit),
    }


def _row(line: Line, bucket: Bucket | None) -> Line:
    kept = {name: line[name] for name in COLUMNS if name == "quota" or line[name] is not None}
    if kept["quota"] is None:
        del kept["quota"]
    elif kept["quota"] == UNLIMITED:
        kept["quota"] = None
    return kept if bucket is None else {"bucket": line["bucket"], **kept}


def _order(value: GroupSum) -> tuple[int, str, int]:
    return (value.bucket_ms or 0, value.group, RESOURCES.index(value.resource))


def _hours(amount_ms: int | None, resource: str) -> Decimal | None:
    return None if amount_ms is None else unit_hours(amount_ms, resource)


def _shown(value: Any) -> str:
    return "-" if value is None else _plain(value)


def _plain(value: Any) -> str:
    if value is None:
        return ""
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def _time(ms: int) -> str:
    time = datetime.datetime.fromtimestamp(0, datetime.UTC) + datetime.timedelta(milliseconds=ms)
    precision = "milliseconds" if ms % 1000 else "seconds"
    return time.isoformat(timespec=precision).replace("+00:00", "Z")
