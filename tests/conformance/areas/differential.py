"""Whole cycles on random clusters against what the reference decided on them (README there)."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kai_es.cli.decide import decide_file
from kai_es.scheduler import flags as rules


class Tally:
    """Equal and all, by what is compared."""

    def __init__(self) -> None:
        self.equal: Counter[str] = Counter()
        self.all: Counter[str] = Counter()

    def count(self, what: str, *, equal: bool) -> bool:
        self.all[what] += 1
        self.equal[what] += equal
        return equal

    def __str__(self) -> str:
        kinds = ("statuses", "nodes", "devices", "shares")
        return " ".join(f"{kind} {self.equal[kind]}/{self.all[kind]}" for kind in kinds)


def decisions_in(paths: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        found += sorted(path.rglob("*.decision.json")) if path.is_dir() else [path]
    return found


def compare(want: dict[str, Any], got: dict[str, Any], tally: Tally) -> str | None:
    """The first difference in statuses or shares; all others are only counted."""
    first = None
    for job, tasks in sorted(want["jobs"].items()):
        mine = got["jobs"].get(job, {})
        statuses = Counter(task["status"] for task in tasks.values())
        ours = Counter(task["status"] for task in mine.values())
        if not tally.count("statuses", equal=statuses == ours):
            first = first or f"job {job}: {_words(ours)}, want {_words(statuses)}"
        for name, task in sorted(tasks.items()):
            our = mine.get(name, {})
            if "node" in task:
                tally.count("nodes", equal=our.get("node") == task["node"])
            if "gpus" in task:
                tally.count("devices", equal=our.get("gpus") == task["gpus"])
    for queue, share in sorted(want["fair_share"].items()):
        our = got["fair_share"].get(queue, {})
        equal = all(
            abs(our.get(key, -2) - value) <= 1e-6 * max(1, abs(value))
            for key, value in share.items()
        )
        if not tally.count("shares", equal=equal):
            first = first or f"queue {queue}: {our}, want {share}"
    return first


def _words(statuses: Counter[str]) -> str:
    return ", ".join(f"{n} {status}" for status, n in sorted(statuses.items()))


def flags_of(case: Any) -> rules.Flags:
    return rules.NONE


def main(paths: Sequence[Path], flags: rules.Flags) -> tuple[int, int]:
    tally, passed, failed = Tally(), 0, 0
    for path in decisions_in(paths):
        name = path.name.removesuffix(".decision.json")
        want = json.loads(path.read_text())
        got = decide_file(path.with_name(f"{name}.snapshot.zip"), compat=bool(flags))
        found = compare(want, got, tally)
        if found is None:
            passed += 1
        else:
            failed += 1
            print(f"FAILED {name}: {found}")
    print(tally)
    return passed, failed
