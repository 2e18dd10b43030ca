"""The folder of an embedded instance: what lies where, and who uses it now."""

import fcntl
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from kai_es import __version__
from kai_es.ports.errors import ConfigError

FORMAT: Final = 1
"""Layout of the folder; a newer one is refused."""


@dataclass(frozen=True, slots=True)
class Instance:
    """Paths below `root`."""

    root: Path

    @property
    def log(self) -> Path:
        """The SQLite log."""
        return self.root / "log.db"

    @property
    def postgres(self) -> Path:
        """Data folder of the embedded PostgreSQL."""
        return self.root / "postgres"

    @property
    def cluster(self) -> Path:
        """Folder of the simulated API server, if this instance has one."""
        return self.root / "cluster"

    @property
    def logs(self) -> Path:
        """Folder of the log lines of the supervised processes."""
        return self.root / "logs"

    @property
    def marker(self) -> Path:
        """The file that makes a folder an instance."""
        return self.root / "kai-es.json"

    def create(self) -> "Instance":
        """Make the folder, or take an existing instance as it is.

        Raises:
            ConfigError: the folder holds something else or a newer instance, or cannot be made.
        """
        if self.marker.exists():
            return self.check()
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            is_empty = not any(self.root.iterdir())
        except OSError as exc:
            raise ConfigError(f"--data {self.root}: {exc.strerror}; name an empty folder") from exc
        if not is_empty:
            raise ConfigError(
                f"--data {self.root} is not empty and not a kai-es instance: name an empty folder"
            )
        self.logs.mkdir(exist_ok=True)
        self.marker.write_text(json.dumps({"format": FORMAT, "created_by": __version__}) + "\n")
        return self

    def check(self) -> "Instance":
        """This instance, if it is one.

        Raises:
            ConfigError: no instance there, or a newer one.
        """
        try:
            found = json.loads(self.marker.read_text())["format"]
        except (FileNotFoundError, NotADirectoryError) as exc:
            raise ConfigError(
                f"no kai-es instance in {self.root}: run `kai-es demo` or `kai-es up --embedded`, "
                "or name one with --data"
            ) from exc
        except (ValueError, KeyError, TypeError) as exc:
            raise ConfigError(f"{self.marker} is damaged: restore it from a backup") from exc
        if found > FORMAT:
            raise ConfigError(
                f"{self.root} was written by a newer kai-es (format {found}, this one knows "
                f"{FORMAT}): upgrade kai-es"
            )
        return self

    def hold(self) -> IO[str]:
        """Hold the instance against a second supervisor, as long as the result is open.

        Raises:
            ConfigError: another process holds it.
        """
        file = (self.root / "lock").open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            file.seek(0)
            raise ConfigError(
                f"the instance in {self.root} is in use by process {file.read().strip() or '?'}: "
                "stop it first or name another folder with --data"
            ) from exc
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        return file
