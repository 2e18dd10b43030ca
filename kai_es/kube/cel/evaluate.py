"""The value of a CEL expression, within a bound of work."""

import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

from kai_es.kube.cel import functions
from kai_es.kube.cel.errors import CelError
from kai_es.kube.cel.syntax import (
    Call,
    Field,
    Index,
    ListOf,
    Literal,
    MapOf,
    Name,
    Node,
    Operation,
    parse,
)
from kai_es.kube.cel.values import checked, equal, kind_of

STEPS_MAX: Final = 20_000
"""Of one evaluation, about 20 ms; selectors of real drivers take less than a hundred."""
SIZE_MAX: Final = 64 * 1024
"""Of a text or list that is put together."""
PROGRAMS_CACHED: Final = 1_024
"""Expressions that are kept compiled."""

Variables = Mapping[str, object]

_COMPARISONS: Final[Mapping[str, Callable[..., bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_ORDERED: Final = ("int", "double", "string", "bool")
_NUMBERS: Final = ("int", "double")


class Program:
    """A compiled expression."""

    def __init__(self, text: str) -> None:
        self._tree = parse(text)

    def value(self, variables: Variables) -> object:
        """Its value.

        Raises:
            CelError: it has none, or takes too much work.
        """
        return _Evaluation().node(self._tree, variables)

    def holds(self, variables: Variables) -> bool:
        """Its value, which must be true or false.

        Raises:
            CelError: it is not, has none, or takes too much work.
        """
        value = self.value(variables)
        if not isinstance(value, bool):
            raise CelError(f"the expression is a {kind_of(value)}, want true or false")
        return value


@lru_cache(maxsize=PROGRAMS_CACHED)
def compile_expression(text: str) -> Program:
    """The program of an expression.

    Raises:
        CelError: it is none.
    """
    return Program(text)


class _Evaluation:
    def __init__(self) -> None:
        self._left = STEPS_MAX

    def spend(self, steps: int) -> None:
        """So much more work."""
        self._left -= steps
        if self._left < 0:
            raise CelError("the expression takes too much work")

    def node(self, node: Node, variables: Variables) -> object:  # noqa: PLR0911 – one per form
        self.spend(1)
        match node:
            case Literal():
                return node.value
            case Name():
                if node.name not in variables:
                    raise CelError(f"there is no variable {node.name}")
                return variables[node.name]
            case Field():
                return self._member(self.node(node.of, variables), node.name)
            case Index():
                return self._item(self.node(node.of, variables), self.node(node.key, variables))
            case Operation():
                return self._operation(node, variables)
            case Call():
                return self._call(node, variables)
            case ListOf():
                return [self.node(item, variables) for item in node.items]
            case MapOf():
                return {
                    self._key(self.node(key, variables)): self.node(value, variables)
                    for key, value in node.items
                }

    @staticmethod
    def _key(key: object) -> str | int | bool:
        if not isinstance(key, str | int | bool):
            raise CelError(f"a {kind_of(key)} cannot be a key")
        return key

    @staticmethod
    def _member(of: object, name: str) -> object:
        if not isinstance(of, Mapping):
            raise CelError(f"a {kind_of(of)} has no field {name}")
        if name not in of:
            raise CelError(f"no such key: {name}")
        return of[name]

    def _item(self, of: object, key: object) -> object:
        if isinstance(of, list) and isinstance(key, int) and not isinstance(key, bool):
            if not 0 <= key < len(of):
                raise CelError(f"index {key} is out of range")
            return of[key]
        if isinstance(of, Mapping):
            found = self._key(key)
            if found not in of:
                raise CelError(f"no such key: {key}")
            return of[found]
        raise CelError(f"a {kind_of(of)} has no item {key!r}")

    # -- operators

    def _operation(self, node: Operation, variables: Variables) -> object:
        op, parts = node.op, node.parts
        if op in ("&&", "||"):
            return self._logic(parts, variables, decisive=op == "||")
        if op == "?:":
            chosen = parts[1] if self._truth(self.node(parts[0], variables)) else parts[2]
            return self.node(chosen, variables)
        return self._value_of(op, [self.node(part, variables) for part in parts])

    def _value_of(self, op: str, values: list[object]) -> object:
        one, other = values[0], values[-1]
        if op == "unary !":
            return not self._truth(one)
        if op == "unary -":
            return self._arithmetic("-", 0.0 if isinstance(one, float) else 0, one)
        if op in ("==", "!="):
            return equal(one, other) == (op == "==")
        if op == "in":
            return self._contains(one, other)
        if op in _COMPARISONS:
            return self._compare(op, one, other)
        return self._arithmetic(op, one, other)

    @staticmethod
    def _truth(value: object) -> bool:
        if not isinstance(value, bool):
            raise CelError(f"found a {kind_of(value)}, want true or false")
        return value

    def _logic(self, sides: tuple[Node, ...], variables: Variables, *, decisive: bool) -> bool:
        """`||` (decisive true) and `&&` (decisive false): one decisive side outweighs an error."""
        error: CelError | None = None
        for side in sides:
            try:
                if self._truth(self.node(side, variables)) is decisive:
                    return decisive
            except CelError as exc:
                if self._left < 0:
                    raise
                error = error or exc
        if error is not None:
            raise error
        return not decisive

    def _contains(self, item: object, of: object) -> bool:
        if isinstance(of, list):
            self.spend(len(of))
            return any(equal(item, one) for one in of)
        if isinstance(of, Mapping):
            return self._key(item) in of
        raise CelError(f"a {kind_of(of)} contains nothing")

    @staticmethod
    def _compare(op: str, one: object, other: object) -> bool:
        kind, other_kind = kind_of(one), kind_of(other)
        are_numbers = kind in _NUMBERS and other_kind in _NUMBERS
        if are_numbers or (kind == other_kind and kind in _ORDERED):
            return _COMPARISONS[op](one, other)
        raise CelError(f"{kind} {op} {other_kind} is not defined")

    def _arithmetic(self, op: str, one: object, other: object) -> object:
        kinds = (kind_of(one), kind_of(other))
        if op == "+" and kinds in (("string", "string"), ("list", "list")):
            total = one + other  # type: ignore[operator]
            self.spend(1 + len(total) // 100)
            if len(total) > SIZE_MAX:
                raise CelError("a value becomes too large")
            return total
        if kinds in (("int", "int"), ("double", "double")):
            return self._number(op, one, other)  # type: ignore[arg-type]
        raise CelError(f"{kinds[0]} {op} {kinds[1]} is not defined")

    @staticmethod
    def _number(op: str, one: float, other: float) -> float:
        if op in ("/", "%") and other == 0:
            raise CelError("division by zero")
        if op == "+":
            return checked(one + other)
        if op == "-":
            return checked(one - other)
        if op == "*":
            return checked(one * other)
        if isinstance(one, int) and isinstance(other, int):
            whole = abs(one) // abs(other) * (1 if (one < 0) == (other < 0) else -1)
            return checked(whole if op == "/" else one - whole * other)
        if op == "/":
            return one / other
        raise CelError("double % double is not defined")

    # -- calls

    def _call(self, node: Call, variables: Variables) -> object:
        macro = _MACROS.get((node.name, node.of is not None, len(node.arguments)))
        if macro is not None:
            return macro(self, node, variables)
        if node.name == "bind" and node.of == Name("cel") and len(node.arguments) == 3:
            return self._bind(node, variables)
        receiver = () if node.of is None else (self.node(node.of, variables),)
        arguments = (*receiver, *(self.node(one, variables) for one in node.arguments))
        return functions.call(self, node.name, arguments)

    def _bind(self, node: Call, variables: Variables) -> object:
        name, value, body = node.arguments
        if not isinstance(name, Name):
            raise CelError("cel.bind wants a name first")
        return self.node(body, {**variables, name.name: self.node(value, variables)})

    def has(self, node: Call, variables: Variables) -> bool:
        """`has(of.name)`."""
        field = node.arguments[0]
        if not isinstance(field, Field):
            raise CelError("has() wants a field")
        of = self.node(field.of, variables)
        return isinstance(of, Mapping) and field.name in of

    def each(self, node: Call, variables: Variables) -> object:
        """`list.all(x, …)` and its like."""
        name, body = node.arguments
        assert node.of is not None
        of = self.node(node.of, variables)
        if not isinstance(of, list | Mapping) or not isinstance(name, Name):
            raise CelError(f"{node.name} wants a list and a name")
        if node.name == "map":
            return [self.node(body, {**variables, name.name: item}) for item in of]
        tests = ((item, {**variables, name.name: item}) for item in of)
        if node.name == "filter":
            return [item for item, inner in tests if self._truth(self.node(body, inner))]
        if node.name == "exists_one":
            return sum(self._truth(self.node(body, inner)) for _, inner in tests) == 1
        return self._any_or_all(body, [inner for _, inner in tests], decisive=node.name == "exists")

    def _any_or_all(self, body: Node, all_inner: list[Variables], *, decisive: bool) -> bool:
        error: CelError | None = None
        for inner in all_inner:
            try:
                if self._truth(self.node(body, inner)) is decisive:
                    return decisive
            except CelError as exc:
                if self._left < 0:
                    raise
                error = error or exc
        if error is not None:
            raise error
        return not decisive


_EACH: Final = ("all", "exists", "exists_one", "filter", "map")
_MACROS: Final[Mapping[tuple[str, bool, int], Callable[[_Evaluation, Call, Variables], object]]] = {
    ("has", False, 1): _Evaluation.has,
    **{
        (name, True, 2): _Evaluation.each
        for name in ("all", "exists", "exists_one", "filter", "map")
    },
}
