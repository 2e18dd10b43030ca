"""`kai-es simulate apiserver|load`: a cluster without machines, and work for it."""

import argparse
import asyncio
import sys
from typing import Final

from kai_es.cli.exits import OK
from kai_es.cluster.endpoint import found
from kai_es.runtime.clock import SystemClock
from kai_es.simulate import apiserver
from kai_es.simulate.client import Client
from kai_es.simulate.counts import positive
from kai_es.simulate.loader import USER_AGENT, Loader
from kai_es.simulate.workload import Sizes, Workload, generate

SIZES: Final = Sizes()
LINE_S: Final = 2.0
"""Between lines that say how far the loading is."""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `simulate` with its subcommands."""
    parser = subparsers.add_parser("simulate", help="simulated cluster, generated work")
    commands = parser.add_subparsers(dest="simulate_command", metavar="COMMAND", required=True)
    server = commands.add_parser(
        "apiserver", help="a Kubernetes API server and the kubelets of its nodes, simulated"
    )
    apiserver.add_arguments(server)
    load = commands.add_parser("load", help="create generated nodes, queues and jobs in a cluster")
    load.add_argument("--kubeconfig", metavar="FILE", help="default: $KUBECONFIG, in-cluster")
    load.add_argument("--nodes", type=positive, default=SIZES.n_nodes, metavar="N")
    load.add_argument("--jobs", type=positive, default=SIZES.n_jobs, metavar="N")
    load.add_argument("--seed", type=int, default=0, metavar="S")
    load.add_argument(
        "--prefix",
        default=SIZES.prefix,
        metavar="NAME",
        help="of the names of jobs (default: %(default)s); another one adds work to a cluster",
    )


def run(args: argparse.Namespace) -> int:
    """Do the subcommand."""
    if args.simulate_command == "apiserver":
        return apiserver.run(args)
    workload = generate(args.seed, Sizes(n_nodes=args.nodes, n_jobs=args.jobs, prefix=args.prefix))
    loader = asyncio.run(_load(args.kubeconfig, workload))
    n_pods = loader.n_pods - loader.n_found
    sys.stdout.write(f"created: {n_pods} pods of {args.jobs} jobs on {args.nodes} nodes\n")
    if loader.n_found:
        _say(f"{loader.n_found} pods were there before and stay: --prefix gives jobs other names")
    return OK


async def _load(kubeconfig: str | None, workload: Workload) -> Loader:
    async with Client(found(kubeconfig), USER_AGENT) as client:
        loader = Loader(client, SystemClock())
        _say(f"creating {len(workload.nodes)} nodes and {len(workload.queues)} queues")
        loading = asyncio.create_task(loader.load(workload))
        try:
            while not (await asyncio.wait((loading,), timeout=LINE_S))[0]:
                _say(_line(loader, workload))
            await loading
        finally:
            loading.cancel()
    return loader


def _line(loader: Loader, workload: Workload) -> str:
    lasts_s = max(job.at_ms for job in workload.jobs) / 1000
    return (
        f"created {loader.n_groups} of {len(workload.jobs)} jobs, which come within "
        f"{lasts_s:.0f} s, {loader.n_pods} of {workload.n_pods} pods"
    )


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
