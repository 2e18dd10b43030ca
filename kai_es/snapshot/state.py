"""Everything that the log says at one offset, by parts, and what can be asked of it."""

from collections.abc import Iterator

from kai_es.kube.objects import Pod
from kai_es.snapshot.chain import Chain
from kai_es.snapshot.lifecycle import Request, Sighting, is_open
from kai_es.snapshot.liveness import Liveness
from kai_es.snapshot.parking import Parking
from kai_es.snapshot.pools import Pools
from kai_es.snapshot.ranking import Objects
from kai_es.snapshot.reigns import Reigns
from kai_es.snapshot.requests import Requests
from kai_es.snapshot.snapshot import Snapshot
from kai_es.snapshot.standing import Standings


class State:
    """The parts of a `World`.

    chain:     accept rule, offset, time, source cursors.
    snapshot:  the rows as `decide` reads them, derived from the others.
    objects:   versions in force, tombstones.
    requests, standings, parking, pools, liveness, reigns: what their modules say.
    """

    def __init__(self) -> None:
        self.chain = Chain()
        self.snapshot = Snapshot()
        self.objects = Objects()
        self.requests = Requests()
        self.standings = Standings()
        self.parking = Parking()
        self.pools = Pools()
        self.liveness = Liveness()
        self.reigns = Reigns()

    @property
    def offset(self) -> int:
        """Identity of the state: the last accepted batch, −1 before the first."""
        return self.chain.offset

    @property
    def time(self) -> int:
        """The log's clock, ms."""
        return self.chain.time

    def sighting(self, pod_uid: str) -> Sighting:
        """What is known of a pod."""
        entry = self.objects.get("Pod", pod_uid)
        if entry is None:
            return Sighting(deleted=self.objects.is_deleted("Pod", pod_uid))
        assert isinstance(entry.obj, Pod)
        return Sighting(pod=entry.obj, incarnation=entry.incarnation)

    def n_live(self, kind: str) -> int:
        """Live uids of a kind, those included of which every version is parked."""
        valid = self.objects.live.get(kind, {})
        parked = (uid for of, uid in self.parking.entries if of == kind and uid not in valid)
        return len(valid) + sum(1 for uid in parked if self.parking.parked(kind, uid))

    def open_requests(self) -> Iterator[str]:
        """Ids of the open requests of every shard, by pod uid."""
        for request in self.requests.all():
            if self.is_open(request):
                yield request.id

    def is_open(self, request: Request) -> bool:
        """Whether a request may still be executed."""
        return is_open(request, self.sighting(request.pod_uid))

    def has_open_request(self, pod_uid: str, *, evict: bool) -> bool:
        """Whether a pod has an open bind (or evict) request, of whatever shard."""
        requests = self.requests.of_pod(pod_uid)
        return any(request.evict == evict and self.is_open(request) for request in requests)
