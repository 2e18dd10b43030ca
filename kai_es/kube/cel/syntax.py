"""A CEL expression as a tree."""

from typing import Final, NamedTuple, TypeAlias

from kai_es.kube.cel.errors import CelError
from kai_es.kube.cel.tokens import Token, tokens_of

DEPTH_MAX: Final = 30
"""Of nested expressions; deeper ones are nobody's intention."""
CHAIN_MAX: Final = 100
"""Of operators and members in all that nest what stands before them (`&&` and `||` do not)."""


class Literal(NamedTuple):
    """A number, a text, true, false, null."""

    value: object


class Name(NamedTuple):
    """A variable."""

    name: str


class Field(NamedTuple):
    """`of.name`."""

    of: "Node"
    name: str


class Index(NamedTuple):
    """`of[key]`."""

    of: "Node"
    key: "Node"


class Call(NamedTuple):
    """`name(arguments)`, or `of.name(arguments)`."""

    of: "Node | None"
    name: str
    arguments: "tuple[Node, ...]"


class Operation(NamedTuple):
    """`&&`, `==`, `!`, unary `-`, `?:` and the like."""

    op: str
    parts: "tuple[Node, ...]"


class ListOf(NamedTuple):
    """`[a, b]`."""

    items: "tuple[Node, ...]"


class MapOf(NamedTuple):
    """`{a: b}`."""

    items: "tuple[tuple[Node, Node], ...]"


Node: TypeAlias = Literal | Name | Field | Index | Call | Operation | ListOf | MapOf

_CONSTANTS: Final = {"true": True, "false": False, "null": None}
_LEVELS: Final = (
    ("||",),
    ("&&",),
    ("<", "<=", ">", ">=", "==", "!=", "in"),
    ("+", "-"),
    ("*", "/", "%"),
)
"""Binary operators, those that bind least first."""


def parse(text: str) -> Node:
    """The tree of an expression.

    Raises:
        CelError: it is none.
    """
    parser = _Parser(tokens_of(text))
    node = parser.expression()
    parser.expect("end", "the end")
    return node


class _Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0
        self._links = 0

    def expect(self, kind: str, value: str) -> None:
        if not self._take(kind, value):
            found = self._tokens[self._at].value
            raise CelError(f"found {found!r}, want {value!r}")

    def _take(self, kind: str, *values: object) -> object:
        """The value of the next word if it is one of these, else None."""
        token = self._tokens[self._at]
        if token.kind == kind and (not values or token.value in values):
            self._at += 1
            return token.value
        return None

    def expression(self) -> Node:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise CelError(f"the expression is nested more than {DEPTH_MAX} deep")
        node = self._binary(0)
        if self._take("op", "?"):
            then = self._binary(0)
            self.expect("op", ":")
            node = Operation("?:", (node, then, self.expression()))
        self._depth -= 1
        return node

    def _binary(self, level: int) -> Node:
        if level == len(_LEVELS):
            return self._unary()
        node = self._binary(level + 1)
        while (op := self._operator(level)) is not None:
            right = self._binary(level + 1)
            if op in ("&&", "||") and isinstance(node, Operation) and node.op == op:
                node = Operation(op, (*node.parts, right))
            else:
                self._link()
                node = Operation(op, (node, right))
        return node

    def _operator(self, level: int) -> str | None:
        op = self._take("op", *_LEVELS[level])
        if op is None and "in" in _LEVELS[level]:
            op = self._take("name", "in")
        return None if op is None else str(op)

    def _link(self) -> None:
        self._links += 1
        if self._links > CHAIN_MAX:
            raise CelError(f"more than {CHAIN_MAX} operators and members")

    def _unary(self) -> Node:
        ops = []
        while (op := self._take("op", "!", "-")) is not None:
            ops.append(str(op))
            self._link()
        node = self._member()
        for op in reversed(ops):
            node = Operation(f"unary {op}", (node,))
        return node

    def _member(self) -> Node:
        node = self._primary()
        while True:
            if self._take("op", "."):
                name = self._take("name")
                if name is None:
                    raise CelError(f"found {self._tokens[self._at].value!r}, want a name")
                self._link()
                if self._take("op", "("):
                    node = Call(node, str(name), self._until(")"))
                else:
                    node = Field(node, str(name))
            elif self._take("op", "["):
                self._link()
                node = Index(node, self.expression())
                self.expect("op", "]")
            else:
                return node

    def _primary(self) -> Node:
        token = self._tokens[self._at]
        self._at += 1
        if token.kind in ("int", "float", "string"):
            return Literal(token.value)
        if token.kind == "name":
            name = str(token.value)
            if name in _CONSTANTS:
                return Literal(_CONSTANTS[name])
            if self._take("op", "("):
                return Call(None, name, self._until(")"))
            return Name(name)
        if token.kind == "op":
            return self._bracketed(token)
        raise CelError(f"found {token.value!r}, want a value")

    def _bracketed(self, token: Token) -> Node:
        if token.value == "(":
            node = self.expression()
            self.expect("op", ")")
            return node
        if token.value == "[":
            return ListOf(self._until("]"))
        if token.value == "{":
            return self._map()
        raise CelError(f"found {token.value!r}, want a value")

    def _until(self, end: str) -> tuple[Node, ...]:
        """Expressions with commas between them, up to a closing bracket."""
        found: list[Node] = []
        while not self._take("op", end):
            if found:
                self.expect("op", ",")
                if self._take("op", end):  # a comma may stand at the end
                    break
            found.append(self.expression())
        return tuple(found)

    def _map(self) -> MapOf:
        found: list[tuple[Node, Node]] = []
        while not self._take("op", "}"):
            if found:
                self.expect("op", ",")
                if self._take("op", "}"):
                    break
            key = self.expression()
            self.expect("op", ":")
            found.append((key, self.expression()))
        return MapOf(tuple(found))
