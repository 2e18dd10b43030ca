"""One `kai-es run` process and what it says of itself."""

import asyncio
import os
import signal
import sys

import aiohttp

from tools import process

SAYS_S = 90.0
"""A start, a client that gives up after 10 s, and a busy machine."""


class Parts:
    """Parts as one process; must not end unless it is told to.

    Args:
        folder: for its log and data.
        names: of the parts.
        options: of the command line, without dashes.
        env: added to ours.

    answers: of /readyz, as far as it was asked.
    """

    def __init__(self, folder, names, *, env=None, **options):
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "process.log"
        self.answers = []
        port = process.free_port()
        self.url = f"http://127.0.0.1:{port}"
        argv = [sys.executable, "-m", "kai_es.cli", "run", *names, "--data", str(folder)]
        argv += ["--listen", f"127.0.0.1:{port}"]
        for name, value in options.items():
            argv += [f"--{name}", value]
        # Faust's workers keep their places in the folder for temporary files.
        own = {"TMPDIR": str(folder)} if "kafka" in options else {}
        self.process = process.start(argv, log=self.log, env={**os.environ, **own, **(env or {})})

    async def says(self, *words, beside=()):
        """Wait until /readyz has these words; `beside` must not be in it then."""
        text = ""
        try:
            async with asyncio.timeout(SAYS_S):
                while (
                    not text or any(w not in text for w in words) or any(w in text for w in beside)
                ):
                    assert self.process.poll() is None, f"ended: {self.log.read_text()[-3000:]}"
                    text = await self._door("/readyz")
                    self.answers += [text] if text else []
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise AssertionError(f"want {words}, /readyz says {text!r}") from None
        return text

    async def ready(self):
        """Wait until nothing is wrong."""
        await self.says("ok\n")

    async def gauge(self, name):
        """One of its metrics, 0 while it does not answer."""
        lines = (await self._door("/metrics")).splitlines()
        return next((float(line.split()[1]) for line in lines if line.startswith(f"{name} ")), 0.0)

    async def _door(self, path):
        timeout = aiohttp.ClientTimeout(total=2)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(self.url + path) as got,
            ):
                return await got.text()
        except (aiohttp.ClientError, TimeoutError):
            return ""

    def told(self, words):
        """How many lines of its log have these words."""
        return sum(words in line for line in self.log.read_text().splitlines())

    def stop(self):
        """End it in good order."""
        if self.process.poll() is None:
            process.stop(self.process, signal.SIGTERM)

    def kill(self):
        """End it as the kernel's memory killer does."""
        process.stop(self.process, signal.SIGKILL)

    def signal(self, number):
        """Send it a signal."""
        self.process.send_signal(number)
