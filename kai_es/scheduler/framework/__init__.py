"""The world of one cycle: session, statement, extension points, fit of task shapes on nodes.

In: columns, configuration, inputs. Out: a session that actions work on. Plugins speak to it only
through the extension points; actions only through its functions.
"""
