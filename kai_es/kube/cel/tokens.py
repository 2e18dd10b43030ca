"""The words of a CEL expression."""

import re
from typing import Final, NamedTuple

from kai_es.kube.cel.errors import CelError

LENGTH_MAX: Final = 10 * 1024
"""Of an expression; the API server takes no longer ones."""

_TOKEN: Final = re.compile(
    r"""
    (?P<space>\s+|//[^\n]*)
  | (?P<float>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]{1,3})?|[0-9]+[eE][+-]?[0-9]{1,3})
  | (?P<int>0[xX][0-9a-fA-F]+[uU]?|[0-9]+[uU]?)
  | (?P<string>[rR]?(?:\"\"\"(?:[^\\]|\\.)*?\"\"\"|'''(?:[^\\]|\\.)*?'''
      |"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'))
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<op>&&|\|\||==|!=|<=|>=|[-+*/%!<>?:.,()\[\]{}])
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPES: Final = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "`": "`",
    "?": "?",
}
_ESCAPE: Final = re.compile(
    r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))", re.DOTALL
)
_INT_MAX: Final = 2**63


class Token(NamedTuple):
    """A word: what it is (`int`, `float`, `string`, `name`, `op`, `end`) and its value."""

    kind: str
    value: object


def tokens_of(text: str) -> list[Token]:
    """All words of an expression, and the end.

    Raises:
        CelError: something that is no word.
    """
    if len(text) > LENGTH_MAX:
        raise CelError(f"the expression has {len(text)} characters, at most {LENGTH_MAX} are read")
    found: list[Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise CelError(f"unexpected character {text[at]!r} at {at}")
        kind, word = str(match.lastgroup), match[0]
        at = match.end()
        if kind == "int":
            found.append(Token("int", _int(word)))
        elif kind == "float":
            found.append(Token("float", float(word)))
        elif kind == "string":
            found.append(Token("string", _string(word)))
        elif kind != "space":
            found.append(Token(kind, word))
    found.append(Token("end", "the end"))
    return found


def _int(word: str) -> int:
    digits = word.rstrip("uU")
    value = int(digits, 16) if digits[:2] in ("0x", "0X") else int(digits[:20])
    if len(digits) > len(str(_INT_MAX)) or value > _INT_MAX:
        raise CelError(f"{word[:30]} is out of range")
    return value


def _string(word: str) -> str:
    is_raw = word[0] in "rR"
    if is_raw:
        word = word[1:]
    quotes = 3 if word[:3] in ('"""', "'''") and len(word) >= 6 else 1
    text = word[quotes:-quotes]
    return text if is_raw else _ESCAPE.sub(_unescaped, text)


def _unescaped(match: re.Match[str]) -> str:
    for digits, base in ((match[1], 16), (match[2], 16), (match[3], 16), (match[4], 8)):
        if digits is not None:
            code = int(digits, base)
            if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
                raise CelError(f"{match[0]} is no character")
            return chr(code)
    found = _ESCAPES.get(match[5])
    if found is None:
        raise CelError(f"{match[0]} is no escape")
    return found
