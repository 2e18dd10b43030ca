"""docs/races.md names tests that are there, for every race."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
TABLE = (TESTS.parent / "docs" / "races.md").read_text()
ROW = re.compile(r"^\| (\d+) \| .* \| (.*) \|$", re.MULTILINE)


def test_every_race_has_its_tests():
    rows = ROW.findall(TABLE)
    races = [int(number) for number, _ in rows]
    assert races[:24] == list(range(1, 25))
    for number, cell in rows:
        file, names = None, 0
        for quoted in re.findall(r"`([^`]+)`", cell):
            if "/" in quoted:
                file = TESTS / quoted
                assert file.is_file(), f"race {number}: {quoted}"
                names += file.suffix != ".py"
            else:
                names += 1
                assert f"def {quoted}(" in file.read_text(), f"race {number}: {quoted}"
        assert names, f"race {number} has no test"
