from pathlib import Path

import pytest

from tests.conformance.story import Story, stories

HERE = Path(__file__).parent


@pytest.mark.parametrize("path", stories(HERE), ids=lambda path: path.stem)
def test_story(path):
    Story().play(path.read_text())
