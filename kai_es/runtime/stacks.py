"""What a process is doing at the moment: stacks of its threads and tasks, on a signal."""

import asyncio
import faulthandler
import signal
import sys


def tell_on_signal() -> None:
    """On SIGUSR1 write the stacks of all threads, then of all tasks of this loop, to stderr.

    Those of the threads also come when the event loop hangs.
    """
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, _tell_tasks)
    faulthandler.register(signal.SIGUSR1, all_threads=True, chain=True)


def _tell_tasks() -> None:
    for task in sorted(asyncio.all_tasks(), key=asyncio.Task.get_name):
        task.print_stack(file=sys.stderr)
    sys.stderr.flush()
