"""The verbs of the API on one object or collection, without HTTP: request in, `Answer` out.

Reads are of what is committed; a write returns before its commit, the caller lets the answer go
after it (`Store.committed`).

Reference: k8s.io/apiserver/pkg/endpoints/handlers, pkg/registry/generic/registry/store.go.
"""

import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from kai_es.kube.times import rfc3339
from kai_es.simulate import answers, lists, patches, pods, strategy
from kai_es.simulate.answers import Answer
from kai_es.simulate.kinds import DISRUPTION_BUDGET, NAMESPACE, POD, PRIORITY_CLASS, Kind
from kai_es.simulate.selectors import Selector
from kai_es.simulate.store import Store, Stored

Object = dict[str, Any]

NAME_PREFIX_MAX: Final = 58
"""A generated name is a prefix of at most this and five characters, 63 in all."""
NAME_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
"""No vowels, so that no words come out; as in Kubernetes."""
NAME_TRIES_MAX: Final = 8

_STRATEGIC_ONLY_BUILT_IN: Final = (*answers.PATCH_TYPES, answers.STRATEGIC_PATCH)


@dataclass(frozen=True, slots=True)
class Target:
    """What a request is about; name "" = the collection, namespace "" = all or none."""

    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def key(self) -> str:
        """Key of the object in the store."""
        return f"{self.namespace}/{self.name}" if self.kind.namespaced else self.name


@dataclass(slots=True)
class DeleteOptions:
    """How to delete. grace_s None = as the object says."""

    grace_s: int | None = None
    uid: str = ""
    resource_version: str = ""
    dry: bool = False

    @classmethod
    def of(cls, body: bytes | Object, query: Mapping[str, str]) -> "DeleteOptions":
        """Options of a request body and its query; the body counts where both speak.

        Raises:
            ApiError: 400, not DeleteOptions.
        """
        try:
            sent = (msgspec.json.decode(body) or {}) if isinstance(body, bytes) and body else body
            sent = sent or {}
            if not isinstance(sent, dict):
                raise answers.bad_request("DeleteOptions is not an object")
            conditions = sent.get("preconditions") or {}
            grace = sent.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
            return cls(
                None if grace in (None, "") else int(grace),
                str(conditions.get("uid") or ""),
                str(conditions.get("resourceVersion") or ""),
                bool(sent.get("dryRun") or query.get("dryRun")),
            )
        except (msgspec.DecodeError, ValueError, TypeError, AttributeError) as error:
            raise answers.bad_request(f"DeleteOptions cannot be decoded: {error}") from error


@dataclass(slots=True)
class Verbs:
    """The verbs on one store.

    namespaces_implicit: a namespace comes into being when something is created in it.
    """

    store: Store
    namespaces_implicit: bool = True
    _uid_space: uuid.UUID = field(init=False)

    def __post_init__(self) -> None:
        self._uid_space = uuid.UUID(hex=self.store.cluster_id)

    # -- reading

    def get(self, target: Target) -> Answer:
        """One object."""
        self.store.settle()
        return Answer(200, self._existing(target).body)

    def list_(self, target: Target, query: Mapping[str, str]) -> Answer:
        """A collection or a page of it."""
        self.store.settle()
        return Answer(200, lists.page(self.store, target.kind, target.namespace, query))

    def _existing(self, target: Target) -> Stored:
        stored = self.store.get(target.kind, target.key)
        if stored is None:
            raise answers.not_found(target.kind, target.name)
        return stored

    # -- create

    def create(self, target: Target, body: bytes, *, dry: bool) -> Answer:
        """A new object."""
        kind, sent = target.kind, strategy.decode(target.kind, body)
        meta = sent["metadata"]
        if meta.get("resourceVersion"):
            raise answers.internal("resourceVersion should not be set on objects to be created")
        self._settle_namespace(target, meta)
        key, name = self._settle_name(target, meta)
        uid = str(uuid.uuid5(self._uid_space, f"{kind.resource}/{key}/{self.store.rv}"))
        if self.store.get(kind, key) is not None:
            raise answers.already_exists(kind, name)
        obj = strategy.prepare_create(kind, sent, uid=uid, now_ms=self.store.clock())
        if kind is POD:
            pods.set_priority(obj, self._objects(PRIORITY_CLASS))
        if dry:
            return Answer(201, msgspec.json.encode(obj), uid, name=name)
        if kind.namespaced:
            self._settle_namespace_object(target, name)
        stored = self.store.put(kind, key, obj)
        return Answer(201, stored.body, stored.uid, stored.rv, name=name)

    def _settle_namespace(self, target: Target, meta: Object) -> None:
        sent = meta.get("namespace") or ""
        if sent != target.namespace and sent:
            raise answers.bad_request(
                "the namespace of the provided object does not match the namespace sent on the "
                "request"
            )
        if target.kind.namespaced:
            meta["namespace"] = target.namespace

    def _settle_name(self, target: Target, meta: Object) -> tuple[str, str]:
        name = meta.get("name") or ""
        prefix = (meta.get("generateName") or "")[:NAME_PREFIX_MAX]
        if not name and not prefix:
            cause = answers.required("metadata.name", "name or generateName is required")
            raise answers.invalid(target.kind, "", [cause])
        for attempt in range(NAME_TRIES_MAX):
            tried = name or prefix + _suffix(f"{self._uid_space}/{self.store.rv}/{attempt}")
            key = f"{target.namespace}/{tried}" if target.kind.namespaced else tried
            if name or self.store.get(target.kind, key) is None:
                break
        meta["name"] = tried
        return key, tried

    def _settle_namespace_object(self, target: Target, name: str) -> None:
        """Make sure that the namespace exists and is not going away."""
        self._check_namespace(target, name)
        if self.store.get(NAMESPACE, target.namespace) is not None:
            return
        if not self.namespaces_implicit:
            raise answers.not_found(NAMESPACE, target.namespace)
        body = msgspec.json.encode({"metadata": {"name": target.namespace}})
        self.create(Target(NAMESPACE, "", target.namespace), body, dry=False)

    def _check_namespace(self, target: Target, name: str) -> None:
        """Nothing is created in a namespace that is going away, bindings and evictions included."""
        stored = self.store.get(NAMESPACE, target.namespace)
        if stored is not None and stored.fields[0] == "Terminating":
            text = f"namespace {target.namespace} is being terminated"
            raise answers.forbidden(
                target.kind,
                name,
                f"unable to create new content in namespace {target.namespace} because it is "
                "being terminated",
                [answers.Cause("metadata.namespace", "NamespaceTerminating", text)],
            )

    def _objects(self, kind: Kind) -> list[Object]:
        return [stored.object() for stored in self.store.shelf(kind).live.values()]

    # -- update and patch

    def update(self, target: Target, body: bytes, *, dry: bool) -> Answer:
        """PUT: replace an object, its status or a namespace's finalizers."""
        kind, sent = target.kind, strategy.decode(target.kind, body)
        meta = sent["metadata"]
        _check_names(target, meta)
        stored = self._existing(target)
        uid = meta.get("uid") or stored.uid
        if uid != stored.uid:
            why = f"UID in precondition: {uid}, UID in object meta: {stored.uid}"
            path = "/".join(part for part in (kind.group, kind.plural, stored.key) if part)
            raise answers.conflict(kind, target.name, answers.storage_error(path, why))
        return self._replace(target, stored, sent, dry=dry)

    def patch(self, target: Target, content_type: str, body: bytes, *, dry: bool) -> Answer:
        """PATCH: JSON patch, JSON merge patch, strategic merge patch."""
        kind = target.kind
        accepted = answers.PATCH_TYPES if kind.custom else _STRATEGIC_ONLY_BUILT_IN
        if content_type not in accepted:
            raise answers.unsupported_patch(kind)
        try:
            patch = msgspec.json.decode(body)
        except msgspec.DecodeError as error:
            raise answers.bad_request(f"error decoding patch: {error}") from error
        stored = self._existing(target)
        old = stored.object()
        if content_type == answers.PATCH_TYPES[0]:
            sent = patches.json_patch(old, patch)
        elif not isinstance(patch, dict):
            raise answers.bad_request("error decoding patch: not an object")
        elif content_type == answers.PATCH_TYPES[1]:
            sent = patches.merge(old, patch)
        else:
            sent = patches.strategic(old, patch)
        if not isinstance(sent, dict):
            raise answers.unprocessable()
        sent = strategy.typed(kind, sent)
        if not sent["metadata"].get("name"):
            raise answers.bad_request(
                f"the name of the object ({target.name} based on URL) was undeterminable: name "
                "must be provided"
            )
        _check_names(target, sent["metadata"])
        return self._replace(target, stored, sent, dry=dry)

    def _replace(self, target: Target, stored: Stored, sent: Object, *, dry: bool) -> Answer:
        kind = target.kind
        rv = str(sent["metadata"].get("resourceVersion") or "")
        if rv in ("", "0"):
            if not kind.unconditional:
                raise answers.no_version(kind, target.name)
        elif rv != str(stored.rv):
            raise answers.modified(kind, target.name)
        uid = sent["metadata"].get("uid") or stored.uid
        if uid != stored.uid:
            # An update has been refused before; a patch with another uid is invalid, no conflict.
            cause = answers.invalid_value("metadata.uid", uid, "field is immutable")
            raise answers.invalid(kind, target.name, [cause])
        old = stored.object()
        obj = strategy.prepare_update(kind, sent, old, subresource=target.subresource)
        if obj == old:
            return Answer(200, stored.body, stored.uid, stored.rv)
        if dry:
            return Answer(200, msgspec.json.encode(obj), stored.uid)
        return self._finish(target, obj)

    def _finish(self, target: Target, obj: Object) -> Answer:
        """Store `obj`, or remove it if this update was the last that its deletion waited for."""
        kind, meta = target.kind, obj["metadata"]
        waits = meta.get("finalizers") or (kind is NAMESPACE and obj["spec"].get("finalizers"))
        over = "deletionTimestamp" in meta and not meta.get("deletionGracePeriodSeconds")
        if over and not waits:
            stored = self.store.remove(kind, target.key, obj)
        else:
            stored = self.store.put(kind, target.key, obj)
        return Answer(200, stored.body, stored.uid, stored.rv)

    # -- subresources of pods

    def bind(self, target: Target, body: bytes, *, dry: bool) -> Answer:
        """POST pods/NAME/binding."""
        binding = _document(body, "Binding")
        self._check_namespace(target, target.name)
        stored = self._existing(target)
        obj = pods.bind(stored, target.name, binding, rfc3339(self.store.clock()))
        if not dry:
            stored = self.store.put(POD, target.key, obj)
        return Answer(201, msgspec.json.encode(answers.created()), stored.uid, stored.rv)

    def evict(self, target: Target, body: bytes, *, dry: bool) -> Answer:
        """POST pods/NAME/eviction."""
        eviction = _document(body, "Eviction")
        self._check_namespace(target, target.name)
        options = DeleteOptions.of(eviction.get("deleteOptions") or {}, {})
        options.dry = options.dry or dry
        stored = self._existing(target)
        peers = self.store.select(POD, Selector(namespace=target.namespace))
        pods.check_budgets(stored, peers, self._objects(DISRUPTION_BUDGET))
        answer = self._delete(target, stored, options)
        return Answer(201, msgspec.json.encode(answers.created()), answer.uid, answer.rv)

    # -- delete

    def delete(self, target: Target, options: DeleteOptions) -> Answer:
        """DELETE of one object."""
        return self._delete(target, self._existing(target), options)

    def delete_collection(
        self, target: Target, query: Mapping[str, str], options: DeleteOptions
    ) -> Answer:
        """DELETE of all objects that match."""
        selector = lists.selector(target.kind, target.namespace, query)
        matching = self.store.select(target.kind, selector)
        for stored in matching:
            namespace, _, name = stored.key.rpartition("/")
            self._delete(Target(target.kind, namespace, name), stored, options)
        return Answer(200, lists.encode(target.kind, matching, self.store.rv))

    def _delete(self, target: Target, stored: Stored, options: DeleteOptions) -> Answer:
        kind = target.kind
        _check_delete(target, stored, options)
        obj = stored.object()
        if options.dry:
            return Answer(200, stored.body, stored.uid)
        if kind is POD:
            return self._delete_gracefully(target, stored, obj, options.grace_s)
        namespace = kind is NAMESPACE and bool(obj["spec"].get("finalizers"))
        if obj["metadata"].get("finalizers") or namespace:
            if "deletionTimestamp" in obj["metadata"]:
                return Answer(200, stored.body, stored.uid, stored.rv)
            self._mark(obj, 0)
            if namespace:
                obj["status"]["phase"] = "Terminating"
                del obj["metadata"]["deletionGracePeriodSeconds"]
            stored = self.store.put(kind, target.key, obj)
            return Answer(200, stored.body, stored.uid, stored.rv)
        gone = self.store.remove(kind, target.key, obj)
        body = msgspec.json.encode(answers.success(kind, target.name, gone.uid))
        return Answer(200, body, gone.uid, gone.rv)

    def _delete_gracefully(
        self, target: Target, stored: Stored, obj: Object, grace_s: int | None
    ) -> Answer:
        """A bound pod stays until the kubelet deletes it with no grace; any other goes at once.

        compat: a pod that goes at once is seen MODIFIED with its deletionTimestamp, then DELETED.
        """
        meta, spec = obj["metadata"], obj["spec"]
        pending = "deletionTimestamp" in meta
        known = int(meta.get("deletionGracePeriodSeconds") or 0)
        if grace_s is None:
            grace_s = known if pending else int(spec.get("terminationGracePeriodSeconds") or 0)
        if not spec.get("nodeName") or obj["status"].get("phase") in pods.TERMINAL:
            grace_s = 0
        grace_s = 1 if grace_s < 0 else grace_s
        if pending and grace_s >= known:
            return Answer(200, stored.body, stored.uid, stored.rv)
        self._mark(obj, grace_s)
        marked = self.store.put(POD, target.key, obj)
        if grace_s or meta.get("finalizers"):
            return Answer(200, marked.body, marked.uid, marked.rv)
        gone = self.store.remove(POD, target.key, obj)
        return Answer(200, gone.body, gone.uid, gone.rv)

    def _mark(self, obj: Object, grace_s: int) -> None:
        meta = obj["metadata"]
        if "deletionTimestamp" not in meta and "generation" in meta:
            meta["generation"] += 1  # of a deletion, not of one made shorter
        meta["deletionTimestamp"] = rfc3339(self.store.clock() + grace_s * 1000)
        meta["deletionGracePeriodSeconds"] = grace_s


def _check_names(target: Target, meta: Object) -> None:
    """An object that is written to a path must be the one that the path names."""
    for part, on_url in (("name", target.name), ("namespace", target.namespace)):
        said = meta.get(part) or on_url
        if said != on_url:
            raise answers.bad_request(
                f"the {part} of the object ({said}) does not match the {part} on the URL ({on_url})"
            )


def _check_delete(target: Target, stored: Stored, options: DeleteOptions) -> None:
    if options.uid and options.uid != stored.uid:
        why = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record "
            f"({stored.uid}). The object might have been deleted and then recreated"
        )
        raise answers.precondition(target.kind, target.name, why)
    if options.resource_version and options.resource_version != str(stored.rv):
        why = (
            f"the ResourceVersion in the precondition ({options.resource_version}) does not match "
            f"the ResourceVersion in record ({stored.rv}). The object might have been modified"
        )
        raise answers.precondition(target.kind, target.name, why)


def _document(body: bytes, what: str) -> Object:
    try:
        obj = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise answers.bad_request(f"{what} cannot be decoded: {error}") from error
    if not isinstance(obj, dict) or obj.get("kind", what) != what:
        raise answers.bad_request(f"the body is not a {what}")
    return obj


def _suffix(seed: str) -> str:
    digest = hashlib.sha256(seed.encode()).digest()
    return "".join(NAME_LETTERS[byte % len(NAME_LETTERS)] for byte in digest[:5])
