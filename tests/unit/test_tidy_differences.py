"""Every rule flag has its row in docs/differences.md, and no row is without a flag."""

import re
from pathlib import Path

from kai_es.scheduler import flags

PAGE = Path(__file__).parents[2] / "docs" / "differences.md"
ROW = re.compile(r"^\| (compat\.\w+) \|", re.MULTILINE)


def test_rows_are_the_flags():
    found = ROW.findall(PAGE.read_text())
    assert sorted(found) == sorted(flags.ALL)
    assert len(found) == len(set(found))
