"""Laws of a statement: rollback changes no byte, undo in the middle = roll back and apply again."""

from hypothesis import given, settings
from hypothesis import strategies as st

from kai_es.scheduler.framework.statement import Statement, StatementError
from tests.scheduler_world import World, a_spec

TASKS = ("run-0", "run-1", "half-0", "want-0", "want-1", "share-0")


def a_session():
    world = World()
    world.node("n1", 4)
    world.node("n2", 4)
    world.queue("q", 4)
    world.group("run", "n1", "n2", min_member=1)
    world.group("half", "n1", spec=a_spec(0.5), group="g1")
    world.group("want", "", "", min_member=1)
    world.group("share", "", spec=a_spec(0.25))
    return world.session()


def picture(session):
    """Every byte that a statement may change."""
    names = {row.pod.uid: row.row for row in session.rows if row is not None}
    jobs = sorted(session.columns.jobs.values(), key=lambda job: job.name)
    return (
        session.nodes.amounts.tobytes(),
        [dict(devices) for devices in session.nodes.devices],
        bytes(session.status),
        bytes(session.virtual),
        [session.node_of(names[task]) for task in TASKS],
        [session.groups_of(names[task]) for task in TASKS],
        [[session.entry(names[task], n) for n in range(2)] for task in TASKS],
        [[list(leaf) for leaf in session.counts(job)] for job in jobs],
        [session.next_tasks(work, real=True) for work in _works(jobs)],
        list(session.shares.allocated),
    )


def _works(jobs):
    from kai_es.scheduler.framework.work import Work

    return [Work(job) for job in jobs]


steps = st.lists(
    st.tuples(
        st.sampled_from(("allocate", "pipeline", "update", "evict", "unevict", "undo")),
        st.sampled_from(TASKS),
        st.integers(0, 1),
        st.integers(0, 6),
    ),
    max_size=12,
)


def run(session, statement, step):
    """One step, if it makes sense at this point; whether it did."""
    kind, name, n, index = step
    task = session.columns.rows.pods[name].row
    shared = session.row(task).shape.shared
    groups = (f"new-{n}",) if shared and kind in ("allocate", "pipeline", "update") else ()
    if kind == "undo":
        if index < len(statement.ops):
            _undo(session, statement, index)
        return
    if kind in ("allocate", "pipeline", "update") and session.status[task] not in (0, 7):
        return
    try:
        if kind == "allocate":
            if session.status[task] == 0:
                statement.allocate(task, n, groups)
        elif kind == "evict":
            if session.status[task] in (2, 3, 6):
                statement.evict(task)
        elif kind == "unevict":
            if session.status[task] == 7:
                statement.unevict(task)
        else:
            statement.pipeline(task, n, groups, update=kind == "update")
    except StatementError:
        pass


def _undo(session, statement, index):
    """Only the last valid operation of its task: others no longer fit the state."""
    op = statement.ops[index]
    later = [o for o in statement.ops[index + 1 :] if o.task == op.task]
    if not later and op.kind != "undo":
        statement.undo(index)


@given(steps, steps)
@settings(max_examples=200)
def test_rollback_restores_every_byte(before, after):
    session = a_session()
    opened = picture(session)
    statement = Statement(session)
    for step in before:
        run(session, statement, step)
    mark, then = statement.checkpoint(), picture(session)
    valid = [op.valid for op in statement.ops]
    for step in after:
        run(session, statement, step)
    statement.rollback(mark)
    assert picture(session) == then
    assert [op.valid for op in statement.ops] == valid
    statement.discard()
    assert picture(session) == opened


def rooms_afresh(nodes):
    gpus = [nodes.idle_gpus(n) + nodes.releasing_gpus(n) for n in range(len(nodes))]
    memory = [nodes.free_memory(n, facts.gpu_memory) for n, facts in enumerate(nodes.columns.facts)]
    return [gpus, memory]


@given(steps)
@settings(max_examples=100)
def test_rooms_follow_every_change(steps):
    session = a_session()
    statement = Statement(session)
    for step in steps:
        run(session, statement, step)
        assert session.nodes.rooms().tolist() == rooms_afresh(session.nodes)
    statement.discard()
    assert session.nodes.rooms().tolist() == rooms_afresh(session.nodes)


@given(st.permutations(("run-0", "run-1")), st.booleans())
@settings(max_examples=20)
def test_uneviction_equals_never_evicting(order, place):
    session = a_session()
    rows = {name: session.columns.rows.pods[name].row for name in TASKS}
    statement = Statement(session)
    for name in order:
        statement.evict(rows[name])
    if place:
        statement.pipeline(rows["want-0"], 0)
    statement.unevict(rows[order[0]])
    undone = picture(session)
    statement.discard()
    statement = Statement(session)
    statement.evict(rows[order[1]])
    if place:
        statement.pipeline(rows["want-0"], 0)
    assert picture(session) == undone
    statement.discard()
