"""The simulated API server as a program: `python -m kai_es.simulate.apiserver --data DIR`.

Prints its URL when it is ready; `DIR/kubeconfig` is how clients reach it.
"""

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from kai_es.simulate.cluster import LISTEN, SimulatedCluster, exit_with_stdin
from kai_es.simulate.counts import positive, seconds
from kai_es.simulate.store import HISTORY_MAX, HISTORY_MS
from kai_es.simulate.watches import BOOKMARK_S


def add_arguments(out: argparse.ArgumentParser) -> None:
    """Its command line."""
    out.add_argument("--data", type=Path, required=True, help="directory of its state")
    out.add_argument(
        "--listen",
        default=LISTEN,
        metavar="HOST:PORT",
        help="port 0: the last one, or a free one; on 0.0.0.0 clients find it by the host's name",
    )
    out.add_argument(
        "--bookmark-seconds", type=seconds, default=BOOKMARK_S, help="time between bookmarks"
    )
    out.add_argument(
        "--history-max", type=positive, default=HISTORY_MAX, help="changes kept for watches"
    )
    out.add_argument(
        "--history-seconds", type=seconds, default=HISTORY_MS / 1000, help="age of changes kept"
    )
    out.add_argument("--no-kubelet", action="store_true", help="bound pods stay pending")
    out.add_argument("--seed", type=int, default=0, help="of the kubelet's latencies")
    out.add_argument(
        "--exit-with-stdin", action="store_true", help="end when standard input is closed"
    )


async def serve(options: argparse.Namespace) -> None:
    """Run until told to stop."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if options.exit_with_stdin:
        exit_with_stdin(stop)
    cluster = SimulatedCluster(
        options.data,
        listen=options.listen,
        kubelet=not options.no_kubelet,
        seed=options.seed,
        bookmark_s=options.bookmark_seconds,
        history_max=options.history_max,
        history_ms=int(options.history_seconds * 1000),
    )
    async with cluster:
        sys.stdout.write(cluster.url + "\n")
        sys.stdout.flush()
        await stop.wait()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; exit code 0 after a signal, 2 if it cannot start."""
    parser = argparse.ArgumentParser(prog="kai_es.simulate.apiserver", description=__doc__)
    add_arguments(parser)
    return run(parser.parse_args(arguments))


def run(options: argparse.Namespace) -> int:
    """Run until a signal; the exit code."""
    try:
        asyncio.run(serve(options))
    except BlockingIOError:
        sys.stderr.write(f"another API server runs on {options.data}: stop it or choose another\n")
        return 2
    except (OSError, ValueError) as error:
        in_data = isinstance(error, OSError) and error.filename
        what = f"use --data {options.data}" if in_data else f"listen on {options.listen}"
        sys.stderr.write(f"cannot {what}: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
