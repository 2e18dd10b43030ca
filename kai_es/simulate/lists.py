"""Collections: whole, in pages of one consistent state, at a given resourceVersion.

Reference: k8s.io/apiserver/pkg/storage/etcd3/store.go, pkg/storage/continue.go.
"""

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from kai_es.simulate import answers, selectors
from kai_es.simulate.answers import ApiError
from kai_es.simulate.kinds import Kind
from kai_es.simulate.selectors import Selector
from kai_es.simulate.store import Frozen, Store, Stored, matching, span


class Continue(NamedTuple):
    """Where the next page starts: after `key`, in the state of `rv` (−1: the present one)."""

    rv: int
    key: str

    def encode(self) -> str:
        """The token a client gets."""
        token = {"v": "meta.k8s.io/v1", "rv": self.rv, "start": self.key + "\0"}
        return base64.urlsafe_b64encode(msgspec.json.encode(token)).rstrip(b"=").decode()

    @classmethod
    def decode(cls, text: str) -> "Continue":
        """The token a client sent.

        Raises:
            ApiError: 400.
        """
        try:
            raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
            token = msgspec.json.decode(raw)
            return cls(int(token["rv"]), str(token["start"]).removesuffix("\0"))
        except (binascii.Error, ValueError, KeyError, TypeError) as error:
            raise answers.bad_request(f"continue key is not valid: {error}") from error


def selector(kind: Kind, namespace: str, query: Mapping[str, str]) -> Selector:
    """What a query selects."""
    return selectors.parse(
        kind, namespace, query.get("labelSelector", ""), query.get("fieldSelector", "")
    )


def number(query: Mapping[str, str], name: str) -> int:
    """A numeric parameter, 0 where absent.

    Raises:
        ApiError: 400.
    """
    text = query.get(name) or "0"
    if not text.isdigit():
        raise answers.bad_request(f'invalid value for "{name}": {text!r} is not a number')
    return int(text)


def page(store: Store, kind: Kind, namespace: str, query: Mapping[str, str]) -> bytes:
    """The list that a query asks for, encoded.

    Raises:
        ApiError: 400, 410 (expired), 422, 504 (from the future).
    """
    chosen = selector(kind, namespace, query)
    limit = number(query, "limit")
    frozen, after = _state(store, kind, query)
    if not limit:
        return encode(kind, matching(frozen, chosen, after), frozen.rv)
    found: list[Stored] = []
    more = False
    for stored in matching(frozen, chosen, after):
        if len(found) == limit:
            more = True
            break
        found.append(stored)
    metadata: dict[str, Any] = {}
    if more:
        metadata["continue"] = Continue(frozen.rv, found[-1].key).encode()
        if chosen.selects_namespace:
            start, stop = span(frozen, chosen, found[-1].key)
            metadata["remainingItemCount"] = stop - start
    return encode(kind, found, frozen.rv, metadata)


def _state(store: Store, kind: Kind, query: Mapping[str, str]) -> tuple[Frozen, str]:
    """The state that a list is to show, and the key after which it starts."""
    rv, token = number(query, "resourceVersion"), query.get("continue")
    _check_options(query)
    if token:
        return _next_state(store, kind, Continue.decode(token))
    if query.get("resourceVersionMatch") == "Exact":
        return store.at(kind, rv), ""
    if rv > store.rv:
        raise answers.too_new(rv, store.rv)
    return store.at(kind, store.rv), ""


def _check_options(query: Mapping[str, str]) -> None:
    rv, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
    if query.get("continue") and rv not in ("", "0"):
        raise answers.bad_request("specifying resource version is not allowed when using continue")
    causes = []
    if match and not rv:
        why = "resourceVersionMatch is forbidden unless resourceVersion is provided"
        causes.append(answers.forbidden_field("resourceVersionMatch", why))
    elif match == "Exact" and rv == "0":
        why = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
        causes.append(answers.forbidden_field("resourceVersionMatch", why))
    if query.get("sendInitialEvents"):
        why = "sendInitialEvents is forbidden for list"
        causes.append(answers.forbidden_field("sendInitialEvents", why))
    if causes:
        raise answers.invalid_options(causes)


def _next_state(store: Store, kind: Kind, position: Continue) -> tuple[Frozen, str]:
    if position.rv < 0:
        return store.at(kind, store.rv), position.key
    try:
        return store.at(kind, position.rv), position.key
    except ApiError as error:
        if error.code != 410:
            raise
        # The fresh token goes on with whatever is there by then.
        fresh = Continue(-1, position.key).encode()
        raise answers.expired(answers.EXPIRED_LIST, fresh) from error


def encode(
    kind: Kind, items: Iterable[Stored], rv: int, metadata: Mapping[str, Any] | None = None
) -> bytes:
    """A list object. Items of built-in kinds carry no kind and apiVersion, as in Kubernetes."""
    if kind.custom:
        bodies = [stored.body for stored in items]
    else:
        cut = len(kind.head)
        bodies = [b"{" + stored.body[cut:] for stored in items]
    meta = msgspec.json.encode({"resourceVersion": str(rv), **(metadata or {})})
    return b'{"kind":"%sList","apiVersion":"%s","metadata":%s,"items":[%s]}' % (
        kind.kind.encode(),
        kind.api_version.encode(),
        meta,
        b",".join(bodies),
    )
