"""`kai-es run PART…`: one or more parts as a process."""

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Mapping
from typing import Final

from kai_es.cli.exits import DAMAGED, OK, UsageError
from kai_es.events.envelope import PoisonError
from kai_es.ports.errors import CorruptLogError, FencedError, GoneError, UnavailableError
from kai_es.ports.race import race
from kai_es.runtime import logs
from kai_es.runtime.binding import APP, FLAGS, add_binder_arguments
from kai_es.runtime.clock import SystemClock
from kai_es.runtime.crew import PartEndedError, run_crew
from kai_es.runtime.doors import doors
from kai_es.runtime.metrics import registry_of
from kai_es.runtime.parts import NAMES, made
from kai_es.runtime.readiness import tell_changes
from kai_es.runtime.settings import (
    ENV_LOG_JSON,
    ENV_LOG_LEVEL,
    add_arguments,
    add_cluster_argument,
    add_part_arguments,
    from_args,
)
from kai_es.runtime.stacks import tell_on_signal
from kai_es.runtime.stopping import end_in_time, no_lingering, stop_event
from kai_es.snapshot.errors import BrokenHistoryError

FENCED: Final = 75
"""Exit code of a process that lost its role, or what it cannot start without; the supervisor
starts it anew (EX_TEMPFAIL)."""
GIL_S: Final = 0.001
"""How long a thread that decides may keep the event loop of its process waiting for the
interpreter; with Python's 5 ms every answer from a socket costs that much while a cycle runs."""

USERS: Final[Mapping[str, tuple[str, ...]]] = {
    "config": ("informer",),
    "mirror-bind-requests": ("status",),
    "shard": ("informer", "scheduler"),
    **dict.fromkeys(FLAGS, ("binder",)),
    APP: ("binder", "informer"),
}
"""Options that only some parts use; to the others they must not be given, as they would do nothing.
What the environment says is for whoever can use it."""

logger = logging.getLogger(__name__)


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `run`."""
    parser = subparsers.add_parser("run", help="run parts of the platform as a process")
    parser.add_argument("parts", nargs="+", metavar="PART", help=", ".join(NAMES))
    parser.add_argument(
        "--listen",
        default="127.0.0.1:0",
        metavar="HOST:PORT",
        help="/healthz /readyz /metrics; of the scheduler also /get-snapshot /get-job-order",
    )
    parser.add_argument("--exit-with-stdin", action="store_true", help=argparse.SUPPRESS)
    add_arguments(parser)
    add_cluster_argument(parser)
    add_part_arguments(parser)
    parser.add_argument("--shard", help=argparse.SUPPRESS)
    add_binder_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run until told to stop."""
    refuse_unused(args)
    logs.configure(
        level=os.environ.get(ENV_LOG_LEVEL, "info"), json_lines=bool(os.environ.get(ENV_LOG_JSON))
    )
    sys.setswitchinterval(GIL_S)
    return asyncio.run(_run(args))


def refuse_unused(args: argparse.Namespace) -> None:
    """An option that no part here uses is a mistake, not a wish.

    Raises:
        UsageError: names the option and the parts that use it.
    """
    if not set(args.parts) <= set(NAMES):
        return  # what is wrong is the part's name
    for option, users in USERS.items():
        if getattr(args, option.replace("-", "_")) and not set(users) & set(args.parts):
            raise UsageError(
                f"--{option} does nothing for {', '.join(args.parts)}: give it to "
                + " or ".join(f"`kai-es run {user}`" for user in users)
                + (", which puts it into the log for all parts" if option == "config" else "")
            )


async def _run(args: argparse.Namespace) -> int:
    stop = stop_event(with_stdin=args.exit_with_stdin)
    tell_on_signal()
    with no_lingering(FENCED) as ending:
        deadline = asyncio.create_task(end_in_time(stop, ending))
        ending.code = await _ended(args, stop)
        deadline.cancel()
    return ending.code


async def _ended(args: argparse.Namespace, stop: asyncio.Event) -> int:
    """Serve; the exit code for what that ended with."""
    try:
        await _serve(args, stop)
    except FencedError as exc:
        logger.warning("fenced", extra={"problem": str(exc)})
        return FENCED
    except (PoisonError, CorruptLogError, BrokenHistoryError, GoneError) as exc:
        logger.error("the log cannot be read on", extra={"problem": str(exc)})
        return DAMAGED
    except UnavailableError as exc:
        logger.warning("unavailable", extra={"problem": str(exc)})
        return FENCED
    except PartEndedError as exc:
        logger.error("part ended", extra={"problem": str(exc)})
        return FENCED
    return OK


async def _serve(args: argparse.Namespace, stop: asyncio.Event) -> None:
    async with made(args.parts, from_args(args)) as (parts, in_order):

        def problems() -> list[str]:
            """Those of the servers, which come last in `parts`, explain the others."""
            return [f"{part.name}: {text}" for part in reversed(parts) for text in part.ready()]

        async with doors(
            address=args.listen,
            alive=lambda: (),
            ready=problems,
            registry=registry_of(parts),
            pages={path: page for part in parts for path, page in part.pages.items()},
        ) as url:
            logger.info("serving", extra={"parts": ",".join(args.parts), "url": url})
            sys.stderr.flush()
            telling = asyncio.create_task(tell_changes(problems, SystemClock()))
            try:
                await race(in_order(), stop.wait())
                if not stop.is_set():
                    await run_crew(parts, stop)
            finally:
                telling.cancel()
