"""Exit codes, and the error that is one."""

from typing import Final

OK: Final = 0
NO: Final = 1
"""The answer is "no": a replay that differs, a verify that fails."""
BAD_INPUT: Final = 2


class UsageError(Exception):
    """Bad input; the text names the input and the fix."""
