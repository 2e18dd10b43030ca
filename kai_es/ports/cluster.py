"""The Kubernetes API, as narrow as kai-es uses it. Objects are raw JSON."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from kai_es.events.requests import Answer
from kai_es.kube.labels import MIRROR
from kai_es.ports.errors import GoneError


class Resource(NamedTuple):
    """Where a kind lives in the API: `v1` or `<group>/<version>`, and its plural.

    names_only: nothing but `metadata` is read of its objects, so a server that can leaves the rest
                out.
    """

    kind: str
    api_version: str
    plural: str
    names_only: bool = False


PODS: Final = Resource("Pod", "v1", "pods")
NODES: Final = Resource("Node", "v1", "nodes")
BIND_REQUESTS: Final = Resource("BindRequest", "scheduling.run.ai/v1alpha2", "bindrequests")
NO_SUCH_KIND: Final = 404
"""Answer to a list of a kind that is not defined; 410 says that it has to be asked for again."""


class Page(NamedTuple):
    """A part of a list. All pages of one list show the same moment, `rv`.

    token: what the next page is asked for with, "" = this is the last one.
    """

    items: Sequence[dict[str, Any]]
    rv: int
    token: str


class WatchItem(NamedTuple):
    """A notification. `type`: ADDED | MODIFIED | DELETED | BOOKMARK."""

    type: str
    object: dict[str, Any]


class ClusterWatch(Protocol):
    """Reading whole kinds.

    Raises (everywhere): UnavailableError; RefusedError: 403, or a request the server cannot take.
    """

    async def list_page(self, resource: Resource, *, limit: int, token: str) -> Page:
        """A page of a consistent list (no resourceVersion given); token "" = the first.

        Raises:
            GoneError: 404, there is no such kind; 410, the token is too old: start again.
        """
        ...

    def watch(
        self, resource: Resource, *, rv: int, silence_s: float
    ) -> AsyncGenerator[Sequence[WatchItem], None]:
        """Changes after `rv`, in order, as they come; ends when the server ends the watch.

        Bookmarks are asked for. Cancelling the iteration closes the connection.

        Raises:
            GoneError: 410 in either form, list again; 404, there is no such kind.
            UnavailableError: also when nothing came for `silence_s`.
        """
        ...


class ClusterWrites(Protocol):
    """Reading and changing single objects, and short lists of them.

    Every change of what is there carries the uid, and the resourceVersion it was decided on.

    Raises (everywhere): UnavailableError: outcome unknown; ConflictError: a precondition failed;
    GoneError: 404; RefusedError: the server will never take it.
    """

    async def get(self, resource: Resource, namespace: str, name: str) -> dict[str, Any]:
        """The live object."""
        ...

    async def list(
        self, resource: Resource, namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> tuple[Sequence[dict[str, Any]], int]:
        """Live objects of one moment, all pages, and its resourceVersion.

        For short lists: what is many is read from the log. `namespace` "" = all namespaces;
        `labels`, `fields`: selectors as the API writes them (`a=b,c in (d,e)`).

        Raises:
            GoneError: also 410, the server forgot the moment between two pages: ask again.
        """
        ...

    async def create(
        self, resource: Resource, namespace: str, body: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Make an object; returns what it became.

        Raises:
            ConflictError: there is one of this name, reason `AlreadyExists`.
            GoneError: there is no such kind, or no such namespace.
        """
        ...

    async def replace(
        self, resource: Resource, namespace: str, name: str, body: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Write `body` in the place of the object whose uid and resourceVersion it carries."""
        ...

    async def bind(
        self,
        namespace: str,
        pod: str,
        *,
        uid: str,
        rv: int,
        node: str,
        annotations: Mapping[str, str],
    ) -> Answer:
        """Bind a pod to a node; the annotations are set on it in the same write."""
        ...

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        uid: str,
        rv: int,
        grace_s: int | None = None,
    ) -> Answer:
        """Delete; `grace_s` None = with the object's own grace period."""
        ...

    async def evict(self, namespace: str, pod: str, *, uid: str, rv: int) -> Answer:
        """Delete a pod if the disruption budget that covers it allows.

        Raises:
            BudgetError: it does not, at present.
        """
        ...

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        changes: Mapping[str, Any],
        *,
        uid: str,
        rv: int,
        subresource: str = "",
    ) -> dict[str, Any]:
        """Merge `changes` into the object (JSON merge patch); returns what it became.

        subresource: `status`, …; "" = the object itself.
        """
        ...

    async def set_conditions(
        self,
        namespace: str,
        pod: str,
        conditions: Sequence[Mapping[str, Any]],
        *,
        annotations: Mapping[str, str],
        uid: str,
        rv: int,
    ) -> dict[str, Any]:
        """Merge conditions into a pod's status by their type, with annotations in the same write.

        Other conditions stay as they are, and so does what a given condition does not name. Returns
        what the pod became, its metadata at least.
        """
        ...


async def foreign_requests(cluster: ClusterWrites) -> Sequence[dict[str, Any]]:
    """BindRequest objects that another scheduler has made; none where there is no such kind.

    Raises:
        AnswerError, UnavailableError: whether there are any is not known.
    """
    try:
        found, _ = await cluster.list(BIND_REQUESTS, labels=f"{MIRROR}!=true")
    except GoneError as exc:
        if exc.status != NO_SUCH_KIND:
            raise
        return ()
    return found
