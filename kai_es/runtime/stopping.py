"""When a process is to end: a signal, or the end of its supervisor."""

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from kai_es.simulate.cluster import exit_with_stdin

LINGER_S: Final = 5.0
"""How long what a process has ended with may take to let go of its threads and tasks."""

STOP_S: Final = 14.0
"""How long a process may take to stop in all; whoever told it to waits 20 s or more."""

logger = logging.getLogger(__name__)


def stop_event(*, with_stdin: bool = False) -> asyncio.Event:
    """An event that SIGTERM and SIGINT set; a second signal ends the process at once.

    Args:
        with_stdin: the end of standard input sets it, too: the supervisor holds the other end, so
            that its children end with it, however it ends.
    """
    event = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if event.is_set():
            os._exit(1)
        event.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    if with_stdin:
        exit_with_stdin(event)
    return event


@dataclass(slots=True)
class Ending:
    """What a process ends with."""

    code: int


@contextlib.contextmanager
def no_lingering(code: int, seconds: float = LINGER_S) -> Iterator[Ending]:
    """End the process for good when it has left this block and still is there after `seconds`.

    A task of a library that refuses its cancellation, or a thread that waits for ever, would keep
    a process that has failed, and its supervisor would never start it anew.

    Args:
        code: the exit code then, unless the block says another.
        seconds: how long it may take.
    """
    ending = Ending(code)
    try:
        yield ending
    finally:
        _end_after(ending, seconds)


async def end_in_time(stop: asyncio.Event, ending: Ending, seconds: float = STOP_S) -> None:
    """Once `stop` is set, end the process for good if it still is there after `seconds`.

    Every part may take its time, and so may what a server that hangs is asked for at the end.
    """
    await stop.wait()
    ending.code = 0
    _end_after(ending, seconds)


def _end_after(ending: Ending, seconds: float) -> None:
    timer = threading.Timer(seconds, _end, (ending, seconds))
    timer.daemon = True
    timer.start()


def _end(ending: Ending, seconds: float) -> None:
    names = ", ".join(sorted(thread.name for thread in threading.enumerate()))
    logger.error("ended by force", extra={"after_s": seconds, "threads": names})
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(ending.code)
