"""What a reservation pod does: it tells which GPU it got.

Reference: binder.md §10.8; pkg/resourcereservation.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from kai_es.binder.reservation import gpu_id
from kai_es.kube.labels import GPU_INDEX
from kai_es.ports.cluster import PODS, ClusterWrites
from kai_es.ports.errors import ConflictError

TRIES: Final = 10  # the kubelet writes to the pod at the same time


class ReserveError(Exception):
    """It cannot tell; says why."""


def own_pod(environ: Mapping[str, str]) -> tuple[str, str]:
    """Namespace and name of the pod that this program runs in.

    Raises:
        ReserveError: the environment does not say.
    """
    found = []
    for variable, word in (("POD_NAMESPACE", "namespace"), ("POD_NAME", "name")):
        text = environ.get(variable, "")
        if not text:
            raise ReserveError(f"could not get pod details, err: could not find pod {word}")
        found.append(text)
    return found[0], found[1]


async def tell(
    cluster: ClusterWrites, namespace: str, name: str, devices: Callable[[], list[str]]
) -> str:
    """Annotate the pod with its GPU, unless that was done before a restart; the GPU.

    Args:
        cluster: where the pod is.
        namespace: of the pod.
        name: of the pod.
        devices: finds the UUIDs of the GPUs that are there.

    Raises:
        ReserveError: there is not exactly one GPU.
        AnswerError, UnavailableError: as of `ClusterWrites`.
    """
    for attempt in range(TRIES):
        pod = await cluster.get(PODS, namespace, name)
        if known := gpu_id(pod):
            return known
        found = devices()
        if len(found) != 1:
            raise ReserveError(f"found {len(found)} devices, 1 was expected")
        try:
            await cluster.patch(
                PODS,
                namespace,
                name,
                {"metadata": {"annotations": {GPU_INDEX: found[0]}}},
                uid=_text(pod, "uid"),
                rv=int(_text(pod, "resourceVersion")),
            )
        except ConflictError:
            if attempt == TRIES - 1:
                raise
        else:
            return found[0]
    raise AssertionError("unreachable: the last try returns or raises")


def _text(pod: Mapping[str, Any], field: str) -> str:
    return str(pod["metadata"][field])
