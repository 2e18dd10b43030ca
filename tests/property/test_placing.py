"""The order of placing = a walk over all pending jobs one by one."""

import functools
import random

from kai_es.scheduler.columns.queues import NO_QUEUE
from kai_es.scheduler.framework.fit import ALL_NODES
from kai_es.scheduler.framework.statement import Statement
from kai_es.scheduler.framework.statuses import IS_ACTIVE
from kai_es.scheduler.framework.work import Work
from kai_es.scheduler.jobs.walk import QueueWalk, WalkRules
from kai_es.scheduler.solve.attempt import Attempt
from kai_es.scheduler.solve.placing import OrderOfPlacing
from kai_es.scheduler.solve.worklist import queue_order
from tests.scheduler_world.random_cluster import RandomCluster


def one_by_one(session, victims, pending):
    """What the module must be equal to."""
    queues = session.columns.queues
    mine = {job for job in victims if job.queue != NO_QUEUE} - {pending.job}
    works = [
        (job.queue, Work(job))
        for job in session.pending_jobs()
        if job.queue != NO_QUEUE and job is not pending.job and job not in mine
    ]
    works += [(job.queue, Work(job)) for job in mine]
    works.append((pending.job.queue, pending))
    rules = WalkRules(queue_key=queue_order(session), job_key=session.job_key, flags=session.flags)
    walk = QueueWalk(queues.parent, rules, works)
    while (work := walk.pop()) is not None:
        if work.job in mine or work.job is pending.job:
            yield work


def given_places(session, statement, works, gives):
    """In which order they come up, if each gets a place at once where there is one."""
    before = statement.checkpoint()
    attempt = Attempt(session, statement, ALL_NODES, pipeline_only=True)
    came = [(work.job.name, gives and attempt.place(work)) for work in works]
    statement.rollback(before)
    return came


def test_runs_of_other_jobs_come_up_as_a_whole():
    compared = 0
    for seed in range(60):
        rng = random.Random(seed)
        session = RandomCluster("everything", seed).world.session()
        order = OrderOfPlacing(session)
        active = [job for job in session.columns.jobs.values() if session.has(job, IS_ACTIVE)]
        active.sort(key=lambda job: job.order)
        for job in rng.sample(session.pending_jobs(), min(4, len(session.pending_jobs()))):
            victims = rng.sample(active, min(3, len(active)))
            statement = Statement(session)
            for victim in victims:
                for task in (task for leaf in victim.tasks for task in leaf):
                    if session.status[task] in IS_ACTIVE:
                        statement.evict(task)
            pending = Work(job)
            gives = rng.random() < 0.5
            got, expected = (
                given_places(session, statement, walk(victims, pending), gives)
                for walk in (order.walk, functools.partial(one_by_one, session))
            )
            assert got == expected
            compared += len(got)
            if rng.random() < 0.5:
                touched = {session.job(op.task) for op in statement.ops}
                statement.commit()
                order.changed(touched)
            else:
                statement.discard()
    assert compared > 300
