"""The shard's configuration from a file, as the object that the informer publishes."""

from pathlib import Path
from typing import Any

from kai_es.kube.labels import RESERVATION_APP
from kai_es.ports.errors import ConfigError
from kai_es.runtime.binding import APP as APP_FLAG
from kai_es.runtime.settings import Settings
from kai_es.scheduler import config
from kai_es.scheduler.config_file import parse_yaml
from kai_es.usage.window import UsageParamsError, usage_params


def shard_configs(settings: Settings) -> list[dict[str, Any]]:
    """The raw ShardConfig of the settings, every default resolved.

    Raises:
        ConfigError: the file cannot be read or used; names file, line or field, and the fix.
    """
    try:
        fields = parse_yaml(Path(settings.config).read_text()) if settings.config else {}
        app = settings.binder.get(APP_FLAG, RESERVATION_APP)
        found = config.Config(**fields, reservation_app=app)
        usage_params(None if found.usage_params is None else {"usageParams": found.usage_params})
    except OSError as exc:
        raise ConfigError(f"--config {settings.config}: {exc.strerror}") from exc
    except (config.ConfigError, UsageParamsError) as exc:
        raise ConfigError(f"--config {settings.config}: {exc}") from exc
    return [{"metadata": {"name": settings.shard}, "settings": found.settings()}]
