"""The binder: statuses of requests, the container that shares a GPU, its environment."""

from kai_es.kube.bind_request import attempted
from kai_es.kube.sharing import fraction_container, with_config_map_volume, with_env


def _status(given, flags):
    request = given["bindRequest"]
    limit = (request.get("spec") or {}).get("backoffLimit")
    found = attempted(request["status"], limit=limit, error=given["bindError"])
    return {"bindRequestStatus": found.status, "requeueAfter": f"{found.again_s}s"}


def _container(given, flags):
    found = fraction_container(given["pod"])
    return {"index": found.number, "type": found.type, "name": found.raw["name"]}


def _env(given, flags):
    return {"container": with_env(given["container"], given["envVar"])}


def _volume(given, flags):
    volume, config_map = given["volumeName"], given["configMapName"]
    spec = with_config_map_volume(given["podSpec"], volume=volume, config_map=config_map)
    return {"podSpec": spec}


OPS = {
    "bindRequestStatus": _status,
    "fractionContainer": _container,
    "setEnvVar": _env,
    "setConfigMapVolume": _volume,
}
