"""Log lines of a process: one line per event with fields, to stderr.

The durable log is the audit trail; these lines are for whoever runs the process.
"""

import logging
import sys
from typing import Final

import msgspec

_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {
    "message",
    "asctime",
    "taskName",
}

_QUIET: Final = {
    **dict.fromkeys(("aiohttp.access", "urllib3", "kubernetes", "alembic"), logging.WARNING),
    # They tell of every lost connection, twice a second while a broker is away, as an error, Faust
    # with stacks; what of it matters comes back to us as an exception, and is said once.
    **dict.fromkeys(("kafka", "aiokafka", "faust", "mode"), logging.CRITICAL),
}
"""Other people's loggers and what we let through of them; all of it at level debug."""


class FieldsFormatter(logging.Formatter):
    """`time level logger message key=value …`; fields come from `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, a traceback below it if there is one."""
        head = f"{self.formatTime(record)} {record.levelname.lower()} {record.name} "
        fields = "".join(f" {key}={value}" for key, value in _fields(record).items())
        text = head + record.getMessage() + fields
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


class JsonFormatter(logging.Formatter):
    """One JSON object per line, for log collectors."""

    def format(self, record: logging.LogRecord) -> str:
        """One JSON object."""
        line = {
            "time": record.created,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


def configure(*, level: str, json_lines: bool) -> None:
    """Set up the root logger of this process. `level`: debug | info | warning | error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if json_lines else FieldsFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    quiet_others(all_of_it=level == "debug")


def quiet_others(*, all_of_it: bool = False) -> None:
    """Let through of other people's loggers what `_QUIET` says, or all of it."""
    for name, level in _QUIET.items():
        logging.getLogger(name).setLevel(logging.NOTSET if all_of_it else level)


def _fields(record: logging.LogRecord) -> dict[str, object]:
    return {key: value for key, value in record.__dict__.items() if key not in _STANDARD}
