"""Undo by recorded values: every cell that is overwritten keeps what it held."""

from typing import Any, Protocol, TypeAlias


class Cells(Protocol):
    """Anything whose cells can be put back: lists, dicts, byte arrays, node amounts."""

    def __setitem__(self, key: Any, value: Any, /) -> None: ...


Entry: TypeAlias = tuple[Cells, Any, Any]
"""(container, key, value before)."""

Journal: TypeAlias = list[Entry]


def restore(journal: Journal, length: int) -> None:
    """Put back everything that was written since the journal had this length."""
    while len(journal) > length:
        cells, key, before = journal.pop()
        cells[key] = before
