"""Scenario generators as plugins; the generators themselves: `solve.generators`.

Reference: pkg/scheduler/plugins/{nodelocalgreedy,multinodegang} (plugins §11.8).
"""

from collections.abc import Mapping

from kai_es.scheduler.framework.session import Session
from kai_es.scheduler.solve.budget import MULTI_NODE_GANG, NODE_LOCAL_GREEDY
from kai_es.scheduler.solve.generators import MultiNodeGang, NodeLocalGreedy


def open_nodelocalgreedy(session: Session, arguments: Mapping[str, str]) -> None:
    """Register `NodeLocalGreedy`, unless it is there."""
    session.ext.generators.setdefault(NODE_LOCAL_GREEDY, NodeLocalGreedy)


def open_multinodegang(session: Session, arguments: Mapping[str, str]) -> None:
    """Register `MultiNodeGang`, unless it is there."""
    session.ext.generators.setdefault(MULTI_NODE_GANG, MultiNodeGang)
