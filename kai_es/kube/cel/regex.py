"""Regular expressions without backtracking: RE2's common part, in time linear in the text.

A pattern is a set of states that are followed all at once, so no text makes it slow. Not offered:
flags other than `(?i)` at the start, Unicode classes, lazy quantifiers matter not for a yes or no.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

from kai_es.kube.cel.errors import CelError

LENGTH_MAX: Final = 512
"""Of a pattern."""
STATES_MAX: Final = 2_000
"""Of a compiled pattern; `a{1000}` has a thousand."""
DEPTH_MAX: Final = 30
"""Of groups in groups."""
REPEAT_MAX: Final = 1_000
"""As RE2."""

_CHAR: Final = 0
_SPLIT: Final = 1
_START: Final = 2
_END: Final = 3
_WORD_EDGE: Final = 4
_NO_WORD_EDGE: Final = 5
_MATCH: Final = 6

Accepts = Callable[[str], bool]


class _State(NamedTuple):
    """One step: what it wants, where it leads to."""

    kind: int
    accepts: Accepts | None = None
    out: tuple[int, ...] = ()


class Regex:
    """A compiled pattern."""

    def __init__(self, pattern: str) -> None:
        compiler = _Compiler(pattern)
        self._start, self._states = compiler.start, compiler.states
        self.n_states = len(self._states)

    def found_in(self, text: str) -> bool:
        """Whether some part of a text matches."""
        states = self._states
        active: list[int] = []
        for at in range(len(text) + 1):
            seen: set[int] = set()
            current: list[int] = []
            for state in (*active, self._start):
                self._follow(state, text, at, seen, current)
            if any(states[state].kind == _MATCH for state in current):
                return True
            if at == len(text):
                return False
            char = text[at]
            active = [
                states[state].out[0]
                for state in current
                if (accepts := states[state].accepts) is not None and accepts(char)
            ]
        return False

    def _follow(self, state: int, text: str, at: int, seen: set[int], current: list[int]) -> None:
        """All states that are reached without a character."""
        pending = [state]
        while pending:
            state = pending.pop()
            if state in seen:
                continue
            seen.add(state)
            step = self._states[state]
            if step.kind in (_CHAR, _MATCH):
                current.append(state)
            elif step.kind == _SPLIT or _holds(step.kind, text, at):
                pending.extend(step.out)


def _holds(kind: int, text: str, at: int) -> bool:
    if kind == _START:
        return at == 0
    if kind == _END:
        return at == len(text)
    edge = (at > 0 and _is_word(text[at - 1])) != (at < len(text) and _is_word(text[at]))
    return edge == (kind == _WORD_EDGE)


def _is_word(char: str) -> bool:
    return char == "_" or (char.isascii() and char.isalnum())


def _is_digit(char: str) -> bool:
    return char.isascii() and char.isdigit()


def _is_space(char: str) -> bool:
    return char in "\t\n\f\r "


_CLASSES: Final[dict[str, Accepts]] = {
    "d": _is_digit,
    "w": _is_word,
    "s": _is_space,
    "D": lambda char: not _is_digit(char),
    "W": lambda char: not _is_word(char),
    "S": lambda char: not _is_space(char),
}
_POSIX: Final[dict[str, Accepts]] = {
    "alnum": lambda char: char.isascii() and char.isalnum(),
    "alpha": lambda char: char.isascii() and char.isalpha(),
    "digit": _is_digit,
    "lower": lambda char: char.isascii() and char.islower(),
    "space": lambda char: char in "\t\n\v\f\r ",
    "upper": lambda char: char.isascii() and char.isupper(),
    "xdigit": lambda char: char in "0123456789abcdefABCDEF",
}
_CONTROL: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}


class _Compiler:
    """Turns a pattern into states, from its end to its start: each knows what follows it."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > LENGTH_MAX:
            raise CelError(f"a pattern has at most {LENGTH_MAX} characters")
        self.states: list[_State] = []
        self._text = pattern
        self._at = 0
        self._depth = 0
        self._folds = pattern.startswith("(?i)")
        if self._folds:
            self._at = len("(?i)")
        tree = self._alternatives()
        if self._at != len(pattern):
            raise CelError(f"pattern {pattern!r}: unexpected {pattern[self._at]!r}")
        self.start = tree(self._new(_State(_MATCH)))

    def _new(self, state: _State) -> int:
        if len(self.states) >= STATES_MAX:
            raise CelError(f"pattern {self._text!r} is too large")
        self.states.append(state)
        return len(self.states) - 1

    def _next(self) -> str:
        return self._text[self._at] if self._at < len(self._text) else ""

    def _take(self, text: str) -> bool:
        if self._text.startswith(text, self._at):
            self._at += len(text)
            return True
        return False

    def _bad(self, problem: str) -> CelError:
        return CelError(f"pattern {self._text!r}: {problem} at {self._at}")

    # -- each makes a function: the state after -> the first state

    def _alternatives(self) -> "Callable[[int], int]":
        branches = [self._sequence()]
        while self._take("|"):
            branches.append(self._sequence())
        if len(branches) == 1:
            return branches[0]
        return lambda after: self._new(
            _State(_SPLIT, out=tuple(branch(after) for branch in branches))
        )

    def _sequence(self) -> "Callable[[int], int]":
        parts = []
        while self._next() and self._next() not in "|)":
            parts.append(self._repeated())

        def chain(after: int) -> int:
            for part in reversed(parts):
                after = part(after)
            return after

        return chain

    def _repeated(self) -> "Callable[[int], int]":
        atom = self._atom()
        low_high = self._quantifier()
        if low_high is None:
            return atom
        low, high = low_high
        if self._quantifier() is not None:
            raise self._bad("two quantifiers in a row")

        def repeat(after: int) -> int:
            if high is None:
                loop = self._new(_State(_SPLIT))
                body = atom(loop)
                self.states[loop] = _State(_SPLIT, out=(body, after))
                after = loop
            else:
                for _ in range(high - low):
                    after = self._new(_State(_SPLIT, out=(atom(after), after)))
            for _ in range(low):
                after = atom(after)
            return after

        return repeat

    def _quantifier(self) -> tuple[int, int | None] | None:
        found: tuple[int, int | None] | None = None
        if self._take("*"):
            found = (0, None)
        elif self._take("+"):
            found = (1, None)
        elif self._take("?"):
            found = (0, 1)
        elif self._next() == "{":
            found = self._braces()
        if found is not None:
            self._take("?")  # lazy or not, a yes is a yes
        return found

    def _braces(self) -> tuple[int, int | None] | None:
        end = self._text.find("}", self._at)
        low, comma, high = self._text[self._at + 1 : max(end, 0)].partition(",")
        if end < 0 or not _is_number(low) or (high and not _is_number(high)):
            return None  # then the brace stands for itself
        least = int(low)
        most = (int(high) if high else None) if comma else least
        if least > REPEAT_MAX or (most is not None and not least <= most <= REPEAT_MAX):
            raise self._bad("a repetition out of range")
        self._at = end + 1
        return least, most

    def _atom(self) -> "Callable[[int], int]":
        char = self._next()
        self._at += 1
        if char == "(":
            return self._group()
        if char == "[":
            return self._one(self._set())
        if char == ".":
            return self._one(lambda c: c != "\n")
        if char in "^$":
            kind = _START if char == "^" else _END
            return lambda after: self._new(_State(kind, out=(after,)))
        if char in "*+?":
            raise self._bad("nothing to repeat")
        if char == "\\":
            return self._escape()
        return self._one(self._literal(char))

    def _group(self) -> "Callable[[int], int]":
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise self._bad("groups nested too deep")
        if self._take("?") and not self._take(":"):
            if not (self._take("P<") or self._take("<")):
                raise self._bad("a kind of group that is not offered")
            end = self._text.find(">", self._at)
            if end < 0 or not self._text[self._at : end].isidentifier():
                raise self._bad("a group without a name")
            self._at = end + 1
        inner = self._alternatives()
        if not self._take(")"):
            raise self._bad("a group without an end")
        self._depth -= 1
        return inner

    def _one(self, accepts: Accepts) -> "Callable[[int], int]":
        return lambda after: self._new(_State(_CHAR, accepts, (after,)))

    def _literal(self, char: str) -> Accepts:
        if self._folds:
            folded = char.casefold()
            return lambda c: c.casefold() == folded
        return lambda c: c == char

    def _escape(self) -> "Callable[[int], int]":
        char = self._next()
        self._at += 1
        if char in ("b", "B"):
            kind = _WORD_EDGE if char == "b" else _NO_WORD_EDGE
            return lambda after: self._new(_State(kind, out=(after,)))
        if char in ("A", "z"):
            kind = _START if char == "A" else _END
            return lambda after: self._new(_State(kind, out=(after,)))
        if char in _CLASSES:
            return self._one(_CLASSES[char])
        return self._one(self._literal(self._escaped(char)))

    def _escaped(self, char: str) -> str:
        """A character that a backslash stands before."""
        if char in _CONTROL:
            return _CONTROL[char]
        if not char or char.isalnum():
            raise self._bad("an escape that is not offered")
        return char

    def _set(self) -> Accepts:
        negated = self._take("^")
        tests: list[Accepts] = []
        first = True
        while first or not self._take("]"):
            first = False
            if self._at >= len(self._text):
                raise self._bad("a set without an end")
            tests.append(self._set_item())
        if negated:
            return lambda c: not any(test(c) for test in tests)
        return lambda c: any(test(c) for test in tests)

    def _set_item(self) -> Accepts:
        if self._take("[:"):
            end = self._text.find(":]", self._at)
            found = _POSIX.get(self._text[self._at : max(end, 0)])
            if found is None:
                raise self._bad("a class that is not offered")
            self._at = end + len(":]")
            return found
        low = self._set_char()
        if not isinstance(low, str):
            return low
        if self._next() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
            self._at += 1
            high = self._set_char()
            if not isinstance(high, str) or high < low:
                raise self._bad("a range in the wrong order")
            return self._range(low, high)
        return self._literal(low)

    def _range(self, low: str, high: str) -> Accepts:
        if self._folds:
            return lambda c: low <= c <= high or low <= c.swapcase() <= high
        return lambda c: low <= c <= high

    def _set_char(self) -> str | Accepts:
        char = self._next()
        self._at += 1
        if char != "\\":
            return char
        char = self._next()
        self._at += 1
        return _CLASSES[char] if char in _CLASSES else self._escaped(char)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= len(str(REPEAT_MAX))


_PATTERNS_CACHED: Final = 256


@lru_cache(maxsize=_PATTERNS_CACHED)
def regex(pattern: str) -> Regex:
    """A compiled pattern.

    Raises:
        CelError: it is none, or uses what is not offered.
    """
    return Regex(pattern)
