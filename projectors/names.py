"""What a name means: the live uid with the highest rank (architecture §2)."""

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from kai_es.snapshot.ranking import Rank

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Names(Generic[K, V]):
    """Values by name. Several uids share a name while the delete of the older is on its way."""

    def __init__(self) -> None:
        self._entries: dict[K, dict[str, tuple[Rank, V]]] = {}

    def put(self, name: K, uid: str, rank: Rank, value: V) -> None:
        """Store the value of a uid."""
        self._entries.setdefault(name, {})[uid] = (rank, value)

    def pop(self, name: K, uid: str) -> None:
        """Forget a uid; unknown ones are of no account."""
        entries = self._entries.get(name)
        if entries is not None and entries.pop(uid, None) is not None and not entries:
            del self._entries[name]

    def get(self, name: K) -> V | None:
        """The value that a name means. At equal rank the greater uid wins, in any order alike."""
        entries = self._entries.get(name)
        if entries is None:
            return None
        if len(entries) == 1:
            return next(iter(entries.values()))[1]
        return max(entries.items(), key=lambda item: (item[1][0], item[0]))[1][1]

    def values(self) -> Iterator[V]:
        """The value that each name means."""
        for name in self._entries:
            value = self.get(name)
            assert value is not None
            yield value
