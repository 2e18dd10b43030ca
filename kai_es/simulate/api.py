"""The simulated API server without HTTP: calls in, answers out.

Around the verbs of `verbs.py`: faults that tests order, the access ledger, the answer that waits
for its commit, kinds that definitions bring along, administration.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kai_es.simulate import answers, crds
from kai_es.simulate.answers import Answer, ApiError
from kai_es.simulate.database import AccessRow
from kai_es.simulate.faults import Fault, Faults, Request
from kai_es.simulate.kinds import DEFINITION, POD, Kind, KindTable
from kai_es.simulate.store import Store
from kai_es.simulate.verbs import DeleteOptions, Target, Verbs
from kai_es.simulate.watches import BOOKMARK_S, WatchOptions, WatchStream, is_true

WRITES: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
INSIDE: Final = "simulated-controllers"
"""Client in this process, whose watches are none that tests could mean."""


class CutError(Exception):
    """The connection is cut; no answer comes."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request on the API, wherever it comes from.

    client: the User-Agent; user: the name behind the token.
    """

    method: str
    target: Target
    query: Mapping[str, str]
    body: bytes = b""
    content_type: str = "application/json"
    client: str = ""
    user: str = ""

    @property
    def verb(self) -> str:
        """The verb as RBAC names it."""
        if self.method == "GET":
            if self.target.name:
                return "get"
            return "watch" if is_true(self.query, "watch") else "list"
        verb = WRITES[self.method]
        return verb if verb != "delete" or self.target.name else "deletecollection"


class Api:
    """The simulated API server, for callers in this process and behind `server.HttpServer`.

    defined: kinds of the definitions in the store (`crds.stored_kinds`).
    """

    def __init__(
        self,
        store: Store,
        table: KindTable,
        *,
        defined: Iterable[Kind] = (),
        bookmark_s: float = BOOKMARK_S,
    ) -> None:
        self.store = store
        self.table = table
        self.verbs = Verbs(store)
        self.faults = Faults()
        self.watches: dict[WatchStream, None] = {}  # ordered: dropped in the same order always
        self._bookmark_s = bookmark_s
        self._defined = {kind.resource: kind for kind in defined if table.add(kind)}
        for kind in self._defined.values():
            store.add_kind(kind)
        self._admin: dict[tuple[str, str], Callable[[dict[str, Any]], Any]] = {
            ("POST", "compact"): self._compact,
            ("POST", "drop-watches"): self._drop_watches,
            ("GET", "faults"): lambda _: self.faults.rules,
            ("PUT", "faults"): self._set_faults,
            ("DELETE", "faults"): lambda _: self.faults.replace((), 0),
            ("GET", "stats"): self._stats,
        }

    async def answer(self, call: Call) -> Answer:
        """Answer any call but a watch, with the faults that are ordered.

        Raises:
            CutError: a fault cuts the connection.
        """
        fault = self._fault(call)
        try:
            await self._suffer(fault)
        except ApiError as error:
            return error.answer()
        answer = self.read(call) if call.method == "GET" else await self.write(call)
        if fault is not None and fault.action == "lose":
            raise CutError
        return answer

    async def watch(
        self,
        call: Call,
        begin: Callable[[], Awaitable[Callable[[bytes], Awaitable[None]]]],
        cut: Callable[[], None],
    ) -> None:
        """Stream a watch until it ends.

        Args:
            call: the watch.
            begin: accepts the watch; returns what writes lines.
            cut: breaks the connection.

        Raises:
            ApiError: the watch is refused.
            CutError: a fault cuts the connection.
        """
        await self._suffer(self._fault(call))
        options = WatchOptions.of(call.target.kind, call.target.namespace, call.query)
        write = await begin()
        stream = WatchStream(self.store, call.target.kind, options, cut)
        if call.client != INSIDE:
            self.watches[stream] = None
        try:
            await stream.run(write, bookmark_s=self._bookmark_s)
        finally:
            self.watches.pop(stream, None)

    async def _suffer(self, fault: Fault | None) -> None:
        """What a fault does before the call is executed."""
        if fault is None:
            return
        if fault.action == "error":
            raise fault.error()
        if fault.action == "delay":
            await asyncio.sleep(fault.delay_ms / 1000)
        if fault.action == "close":
            raise CutError

    def _fault(self, call: Call) -> Fault | None:
        if not self.faults.rules:
            return None
        target = call.target
        return self.faults.find(
            Request(
                verb=call.verb,
                resource=target.kind.resource,
                subresource=target.subresource,
                namespace=target.namespace,
                name=target.name,
                client=call.client,
            )
        )

    def read(self, call: Call) -> Answer:
        """Answer a get or a list."""
        try:
            if call.target.subresource not in ("", "status"):
                raise answers.method_not_allowed()
            if call.target.name:
                return self.verbs.get(call.target)
            return self.verbs.list_(call.target, call.query)
        except ApiError as error:
            return error.answer()

    async def write(self, call: Call) -> Answer:
        """Execute a write, enter it into the access ledger, answer when both are in the file."""
        try:
            answer = self._write(call)
            if call.target.kind is DEFINITION and answer.rv:
                self._follow_definitions()
        except ApiError as error:
            answer = error.answer()
        target = call.target
        row = AccessRow(
            self.store.clock(),
            call.verb,
            target.kind.resource,
            target.subresource,
            target.namespace,
            target.name or answer.name,
            answer.uid,
            call.client,
            call.user,
            answer.rv,
            answer.status,
        )
        self.store.note(row)
        await self.store.committed()
        return answer

    def _write(self, call: Call) -> Answer:
        target, dry = call.target, bool(call.query.get("dryRun"))
        if target.subresource in ("binding", "eviction"):
            return self._write_pod(call, dry)
        if target.kind.namespaced and not target.namespace and call.method != "DELETE":
            raise answers.method_not_allowed()
        match call.method:
            case "POST" if not target.name:
                _accept_json(call)
                return self.verbs.create(target, call.body, dry=dry)
            case "PUT" if target.name:
                _accept_json(call)
                return self.verbs.update(target, call.body, dry=dry)
            case "PATCH" if target.name:
                return self.verbs.patch(target, call.content_type, call.body, dry=dry)
            case "DELETE" if not target.subresource:
                options = DeleteOptions.of(call.body, call.query)
                if target.name:
                    return self.verbs.delete(target, options)
                return self.verbs.delete_collection(target, call.query, options)
        raise answers.method_not_allowed()

    def _write_pod(self, call: Call, dry: bool) -> Answer:
        if call.method != "POST" or not call.target.namespace:
            raise answers.method_not_allowed()
        _accept_json(call)
        if call.target.subresource == "eviction":
            return self.verbs.evict(call.target, call.body, dry=dry)
        target = call.target
        if not target.name:
            name = _name_in(call.body)
            target = Target(POD, target.namespace, name, "binding")
        return self.verbs.bind(target, call.body, dry=dry)

    def _follow_definitions(self) -> None:
        """Serve what definitions define, and no more what they no longer do."""
        objects = [stored.object() for stored in self.store.shelf(DEFINITION).live.values()]
        defined = {kind.resource: kind for kind in map(crds.kind_of, objects)}
        for resource, kind in defined.items():
            if resource not in self._defined and self.table.add(kind):
                self.store.add_kind(kind)
                self._defined[resource] = kind
        for resource in self._defined.keys() - defined.keys():
            kind = self._defined.pop(resource)
            self.store.remove_all(kind)
            self.table.remove(kind)

    def administer(self, method: str, command: str, sent: dict[str, Any]) -> Any:
        """What tests order: `POST compact`, `POST drop-watches`, faults, `GET stats`.

        Raises:
            LookupError: no such command.
            ValueError: it cannot be done with what was sent.
        """
        return self._admin[method, command](sent)

    def _compact(self, sent: dict[str, Any]) -> dict[str, int]:
        self.store.compact(int(sent.get("rv", self.store.rv)))
        return {"rv": self.store.rv, "compacted": self.store.compacted}

    def _drop_watches(self, sent: dict[str, Any]) -> dict[str, int]:
        chosen = [w for w in self.watches if sent.get("resource") in (None, w.resource)]
        for stream in chosen:
            if sent.get("graceful"):
                stream.finish()
            else:
                stream.drop()
        return {"dropped": len(chosen)}

    def _set_faults(self, sent: dict[str, Any]) -> list[Fault]:
        rules = msgspec.convert(sent.get("rules", []), list[Fault])
        self.faults.replace(rules, int(sent.get("seed", 0)))
        return self.faults.rules

    def _stats(self, _: dict[str, Any]) -> dict[str, Any]:
        counts = {k.resource: len(self.store.shelf(k).live) for k in self.table.kinds}
        return {
            "rv": self.store.rv,
            "compacted": self.store.compacted,
            "objects": {resource: n for resource, n in counts.items() if n},
            "watches": sorted(stream.resource for stream in self.watches),
        }


def _accept_json(call: Call) -> None:
    if call.content_type not in ("application/json", "", "*/*"):
        raise answers.unsupported_media_type(("application/json",))


def _name_in(body: bytes) -> str:
    try:
        return str(msgspec.json.decode(body)["metadata"]["name"])
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise answers.bad_request("the body is not a Binding with a name") from error
