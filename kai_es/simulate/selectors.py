"""Label and field selectors.

Reference: k8s.io/apimachinery/pkg/labels/selector.go, pkg/fields/selector.go.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kai_es.simulate import answers
from kai_es.simulate.kinds import Kind

_SET: Final = re.compile(r"^([^\s!=,()]+)\s+(in|notin)\s*\(([^()]*)\)$")
_EQUAL: Final = re.compile(r"^([^\s!=,()]+)\s*(==|=|!=)\s*([^\s!=,()]*)$")
_EXISTS: Final = re.compile(r"^(!?)\s*([^\s!=,()]+)$")
_COMMA: Final = re.compile(r",(?![^(]*\))")
"""A comma that is not inside parentheses."""
_FIELD: Final = re.compile(r"^([^!=]+?)(==|=|!=)(.*)$")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One term. `wanted` True: the value is one of `values`; () = any value.

    False: it is none of them, an absent key included.
    """

    key: str
    wanted: bool
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether these labels satisfy the term."""
        value = labels.get(self.key)
        found = value is not None and (not self.values or value in self.values)
        return found is self.wanted


@dataclass(frozen=True, slots=True)
class Selector:
    """What a list, watch or deletecollection asks for.

    labels:    all must hold.
    fields:    (position in `Kind.fields`, wanted, value).
    namespace, name: "" = any.
    not_names: (on the namespace?, value) that must differ.
    indexed:   the value of the kind's indexed field that is asked for, None = any.
    """

    namespace: str = ""
    name: str = ""
    labels: tuple[Requirement, ...] = ()
    fields: tuple[tuple[int, bool, str], ...] = ()
    not_names: tuple[tuple[bool, str], ...] = ()
    indexed: str | None = None

    @property
    def selects_namespace(self) -> bool:
        """True if every object of the namespace, or of all, matches."""
        return not (self.name or self.labels or self.fields or self.not_names)

    def matches(self, key: str, labels: Mapping[str, str], fields: Sequence[str]) -> bool:
        """Whether the object under `key` with these labels and field values matches."""
        namespace, _, name = key.rpartition("/")
        if self.namespace and namespace != self.namespace:
            return False
        if self.name and name != self.name:
            return False
        for on_namespace, value in self.not_names:
            if (namespace if on_namespace else name) == value:
                return False
        for index, wanted, value in self.fields:
            if (fields[index] == value) is not wanted:
                return False
        return all(requirement.holds(labels) for requirement in self.labels)


def parse_labels(text: str) -> tuple[Requirement, ...]:
    """A `labelSelector` parameter.

    Raises:
        ApiError: 400, not a selector.
    """
    return tuple(_requirement(part.strip()) for part in _COMMA.split(text)) if text.strip() else ()


def _requirement(text: str) -> Requirement:
    if match := _EQUAL.match(text):
        return Requirement(match[1], match[2] != "!=", (match[3],))
    if match := _SET.match(text):
        values = tuple(value.strip() for value in match[3].split(","))
        return Requirement(match[1], match[2] == "in", values)
    if match := _EXISTS.match(text):
        return Requirement(match[2], not match[1])
    raise answers.bad_request(f"unable to parse requirement: {text!r} is not a label selector term")


def of_label_selector(selector: Mapping[str, Any]) -> tuple[Requirement, ...]:
    """A `LabelSelector` object (matchLabels, matchExpressions) of a spec."""
    out = [Requirement(k, wanted=True, values=(v,)) for k, v in _map(selector, "matchLabels")]
    for expression in selector.get("matchExpressions") or ():
        operator, values = expression["operator"], tuple(expression.get("values") or ())
        out.append(Requirement(expression["key"], operator in ("In", "Exists"), values))
    return tuple(out)


def _map(obj: Mapping[str, Any], key: str) -> list[tuple[str, str]]:
    return list((obj.get(key) or {}).items())


def parse(kind: Kind, namespace: str, label_text: str, field_text: str) -> Selector:
    """The selector of a request on the collection of `kind` in `namespace` ("" = all).

    Raises:
        ApiError: 400, not a selector or a field that is not selectable.
    """
    name, fields, not_names = "", [], []
    for part in field_text.split(",") if field_text else ():
        match = _FIELD.match(part.strip())
        if match is None:
            raise answers.bad_request(
                f"invalid selector: {field_text!r}; can't understand {part!r}"
            )
        field, wanted, value = match[1].strip(), match[2] != "!=", match[3].strip()
        if field in ("metadata.name", "metadata.namespace"):
            on_namespace = field == "metadata.namespace"
            known = namespace if on_namespace else name
            if not wanted or (known and known != value):
                # Two different names can both be demanded; then nothing matches.
                not_names.append((on_namespace, known if wanted else value))
            elif on_namespace:
                namespace = value
            else:
                name = value
        elif field in kind.fields:
            fields.append((kind.fields.index(field), wanted, value))
        else:
            raise answers.bad_request(f"field label not supported: {field}")
    equal = (value for number, wanted, value in fields if wanted and number == kind.index_number)
    return Selector(
        namespace,
        name,
        parse_labels(label_text),
        tuple(fields),
        tuple(not_names),
        next(equal, None),
    )
