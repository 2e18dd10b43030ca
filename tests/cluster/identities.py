"""The parts' own accounts, as deploy/rbac makes them."""

from pathlib import Path

from tests.cluster.conftest import MANIFESTS
from tests.manifests import documents
from tests.simulation.api_client import Api
from tools.kubernetes import write_kubeconfig

RBAC = "/apis/rbac.authorization.k8s.io/v1"
PATHS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
    "Role": f"{RBAC}/namespaces/{{namespace}}/roles",
    "RoleBinding": f"{RBAC}/namespaces/{{namespace}}/rolebindings",
}
FILES = ("namespaces", "log-only", "informer", "binder", "status", "reservation")


def manifests() -> list[dict]:
    """All objects of deploy/rbac, namespaces first."""
    files = [MANIFESTS / "rbac" / f"{name}.yaml" for name in FILES]
    assert set(files) == set((MANIFESTS / "rbac").glob("*.yaml"))
    return [obj for file in files for obj in documents(file)]


def path_of(obj: dict) -> str:
    """Where objects of its kind are created."""
    return PATHS[obj["kind"]].format(namespace=obj["metadata"].get("namespace", ""))


def install_roles(api: Api) -> None:
    """Create what is not there; roles become what the files say."""
    for obj in manifests():
        status, answer = api.call("POST", path_of(obj), obj)
        assert status in (201, 409), answer
        if obj["kind"] in ("ClusterRole", "Role"):
            api.ok("PUT", f"{path_of(obj)}/{obj['metadata']['name']}", obj)


def account(api: Api, name: str, folder: Path, *, namespace: str = "kai-scheduler") -> Path:
    """A kubeconfig with a token of a service account."""
    where = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    token = api.ok("POST", where, {"spec": {}})["status"]["token"]
    path = folder / f"{name}.kubeconfig"
    certificate = Path(api.client.configuration.ssl_ca_cert)
    write_kubeconfig(path, url=api.host, certificate=certificate, token=token)
    return path


def cluster_role(name: str) -> dict:
    """One of the roles."""
    roles = (obj for obj in manifests() if obj["kind"] == "ClusterRole")
    return next(role for role in roles if role["metadata"]["name"] == name)


def without(api: Api, role: str, resource: str) -> None:
    """Take a resource from all rules of a cluster role."""
    obj = next(
        o for o in manifests() if o["kind"] == "ClusterRole" and o["metadata"]["name"] == role
    )
    rules = [r | {"resources": [n for n in r["resources"] if n != resource]} for r in obj["rules"]]
    obj["rules"] = [rule for rule in rules if rule["resources"]]
    api.ok("PUT", f"{path_of(obj)}/{role}", obj)
