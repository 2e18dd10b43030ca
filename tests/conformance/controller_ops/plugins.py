"""Plugins of the binder: built-in ones, overrides, what goes together."""

from kai_es.binder import plugins
from kai_es.ports.errors import ConfigError


def _shown(found):
    return {
        "plugins": {
            name: {"enabled": plugin.enabled, "priority": plugin.priority}
            | ({"arguments": dict(plugin.arguments)} if plugin.arguments else {})
            for name, plugin in found.items()
        },
        "order": list(plugins.in_order(found)),
    }


def _known(raw):
    return plugins.overridden({}, raw)


def _defaults(given, flags):
    cdi = given["cdiEnabled"]
    return _shown(plugins.defaults(timeout_s=given["bindTimeoutSeconds"], cdi=cdi))


def _overrides(given, flags):
    return _shown(plugins.overridden(_known(given["defaults"]), given["overrides"]))


def _dependencies(given, flags):
    try:
        plugins.check(_known(given["plugins"]))
    except ConfigError as exc:
        return {"valid": False, "error": str(exc)}
    return {"valid": True}


OPS = {
    "binderPluginDefaults": _defaults,
    "binderPluginOverrides": _overrides,
    "binderPluginDependencies": _dependencies,
}
