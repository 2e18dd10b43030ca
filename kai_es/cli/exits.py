"""Exit codes, and the error that is one."""

from typing import Final

OK: Final = 0
NO: Final = 1
"""The answer is "no": a replay that differs, a verify that fails."""
BAD_INPUT: Final = 2
DAMAGED: Final = 65
"""The log cannot be read on, and trying anew would not help (EX_DATAERR)."""


class UsageError(Exception):
    """Bad input; the text names the input and the fix."""
