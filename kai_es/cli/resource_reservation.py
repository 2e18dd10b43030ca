"""`kai-es resource-reservation`: the program inside a reservation pod."""

import argparse
import asyncio
import os
import signal
import sys
from typing import Final

from kai_es.binder.reserve import ReserveError, own_pod, tell
from kai_es.cli.exits import NO, OK
from kai_es.cluster.api import ApiServer
from kai_es.cluster.endpoint import found
from kai_es.ports.errors import AnswerError, ConfigError, UnavailableError
from kai_es.runtime.gpus import uuids

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
IDLE: Final = "import signal; signal.sigwait({signal.SIGTERM, signal.SIGINT})"
"""What it is from then on: a small program that holds the GPU and ends when it is told."""


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `resource-reservation`."""
    parser = subparsers.add_parser(
        "resource-reservation", help="in a reservation pod: tell which GPU it got, and keep it"
    )
    parser.add_argument("--kubeconfig", metavar="FILE", help="default: in-cluster")
    parser.add_argument("--once", action="store_true", help="end instead of keeping it")


def run(args: argparse.Namespace) -> int:
    """Tell, then wait for the end."""
    # blocked, not handled: a signal that comes before the wait begins must not be lost, and the
    # first process of a container has no default actions
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        uuid = asyncio.run(_tell(args.kubeconfig))
    except (ReserveError, AnswerError, UnavailableError, ConfigError) as exc:
        sys.stderr.write(f"Error while running the app: {exc}\n")
        return NO
    sys.stdout.write(f"reserved: {uuid}\n")
    sys.stdout.flush()
    if not args.once:
        os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", IDLE])
    return OK


async def _tell(kubeconfig: str | None) -> str:
    namespace, name = own_pod(os.environ)
    async with ApiServer(found(kubeconfig)) as cluster:
        return await tell(cluster, namespace, name, uuids)
