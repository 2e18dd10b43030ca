"""When a process is to end: a signal, or the end of its supervisor."""

import asyncio
import os
import signal

from kai_es.simulate.cluster import exit_with_stdin


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
