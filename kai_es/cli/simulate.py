"""`kai-es simulate apiserver|load`: a cluster without machines, and work for it."""

import argparse
import asyncio
import sys

from kai_es.cli.exits import OK, UsageError
from kai_es.cluster.endpoint import found
from kai_es.runtime.clock import SystemClock
from kai_es.simulate import apiserver
from kai_es.simulate.client import Client
from kai_es.simulate.loader import USER_AGENT, Loader
from kai_es.simulate.workload import Sizes, Workload, generate


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
    load.add_argument("--nodes", type=int, default=50, metavar="N")
    load.add_argument("--jobs", type=int, default=400, metavar="N")
    load.add_argument("--seed", type=int, default=0, metavar="S")


def run(args: argparse.Namespace) -> int:
    """Do the subcommand."""
    if args.simulate_command == "apiserver":
        return apiserver.run(args)
    try:
        workload = generate(args.seed, Sizes(n_nodes=args.nodes, n_jobs=args.jobs))
    except ValueError as exc:
        raise UsageError(str(exc)) from exc
    n_pods = asyncio.run(_load(args.kubeconfig, workload))
    sys.stdout.write(f"created: {n_pods} pods of {args.jobs} jobs on {args.nodes} nodes\n")
    return OK


async def _load(kubeconfig: str | None, workload: Workload) -> int:
    async with Client(found(kubeconfig), USER_AGENT) as client:
        loader = Loader(client, SystemClock())
        await loader.load(workload)
    return loader.n_pods
