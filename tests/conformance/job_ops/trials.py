"""Trial changes of a statement on a small cluster."""

from collections.abc import Mapping
from typing import Any

from kai_es.events.decisions import CycleInputs
from kai_es.kube.labels import GPU_MICRO
from kai_es.kube.objects import PodGroup, SubGroup
from kai_es.scheduler.columns.nodes import NO_ROW
from kai_es.scheduler.config import Config
from kai_es.scheduler.decide import open_session
from kai_es.scheduler.flags import Flags
from kai_es.scheduler.framework.session import Session
from kai_es.scheduler.framework.statement import Checkpoint, Statement, StatementError
from kai_es.scheduler.framework.statuses import IS_ALLOCATED
from kai_es.scheduler.framework.work import Work
from kai_es.snapshot.effective import GroupState
from kai_es.snapshot.snapshot import Snapshot
from kai_es.snapshot.status import TaskStatus
from tests.conformance import build, rows
from tests.conformance.diff import exact_map, first_difference
from tests.conformance.job_ops import Input, Result, Run


class Trial:
    """A session on the cluster of a case, and its statement."""

    def __init__(self, case: Input, flags: Flags) -> None:
        snapshot = Snapshot()
        for name, raw in case["nodes"].items():
            snapshot.set_node(rows.node_of(raw, name), rv=1)
        self.job_of: dict[str, str] = {}
        for name, raw in case["jobs"].items():
            self._store_job(snapshot, name, raw)
        inputs = CycleInputs(shard="case", cycle=1, now_ms=1, flags=tuple(sorted(flags)))
        self.session: Session = open_session(snapshot, Config(), inputs)
        self.statement = Statement(self.session)
        self.rows = {uid: snapshot.pods[uid].row for uid in self.job_of}
        self.checkpoints: dict[int, Checkpoint] = {}

    def _store_job(self, snapshot: Snapshot, name: str, raw: Input) -> None:
        leaves = raw["subGroups"]
        only_default = list(leaves) == ["default"]
        group = PodGroup(
            uid=name,
            namespace=raw.get("namespace", ""),
            name=name,
            queue=raw.get("queue", ""),
            min_member=leaves["default"].get("minAvailable", 0) if only_default else None,
            sub_groups=()
            if only_default
            else tuple(
                SubGroup(name=leaf, min_member=one.get("minAvailable", 0))
                for leaf, one in leaves.items()
            ),
        )
        snapshot.set_group(group, rv=1, state=GroupState())
        for leaf, one in leaves.items():
            for task in one.get("tasks", ()):
                uid = task["uid"]
                self.job_of[uid] = name
                pod = rows.pod_of(task, uid, group=name, sub_group="" if only_default else leaf)
                state = rows.state_of(task, task.get("nodeName", ""))
                snapshot.set_pod(pod, rv=1, task=state)

    def step(self, step: Input) -> str | None:
        """Do one step; the reference's error text if it makes no sense."""
        do, statement = step["do"], self.statement
        if do == "checkpoint":
            self.checkpoints[step["at"]] = statement.checkpoint()
        elif do == "rollback":
            statement.rollback(self.checkpoints[step["to"]])
        elif do == "undo":
            statement.undo(step["operation"])
        else:
            return self._operation(step)
        return None

    def _operation(self, step: Input) -> str | None:
        task, statement = self.rows[step["task"]], self.statement
        n = self.session.nodes.columns.row.get(step.get("node", ""), NO_ROW)
        groups = tuple(step.get("gpuGroups") or ())
        try:
            if step["do"] == "evict":
                statement.evict(task)
            elif step["do"] == "allocate":
                statement.allocate(task, n, groups)
            else:
                statement.pipeline(task, n, groups, update=step.get("updateIfOnNode", False))
        except StatementError:
            if step["do"] == "evict":
                node = self.session.row(task).state.node
                return f"node doesn't exist in sesssion: <{node}>"
            pod = self.session.row(task).pod
            return f"task <{pod.namespace}/{pod.name}> already on node <{step['node']}>"
        return None

    # -- what there is now

    def picture(self) -> Result:
        columns = self.session.nodes.columns
        nodes = {facts.name: self._node(n) for n, facts in enumerate(columns.facts)}
        jobs: dict[str, Any] = {}
        for job in self.session.columns.jobs.values():
            jobs[job.name] = {"allocated": self._allocated(job), "tasks": {}}
        for uid, job in self.job_of.items():
            jobs[job]["tasks"][uid] = self._task(self.rows[uid])
        return {"nodes": nodes, "jobs": jobs}

    def _node(self, n: int) -> Result:
        state = self.session.nodes
        idle, free, used = state.column(n)
        return {
            "idle": self._amounts(idle),
            "releasing": self._amounts(free - idle),
            "used": self._amounts(used),
            "gpuSharing": {
                "usedSharedGpusMemory": {g: d.used for g, d in state.devices[n].items()},
                "allocatedSharedGpusMemory": {g: d.allocated for g, d in state.devices[n].items()},
                "releasingSharedGpusMemory": {g: d.releasing for g, d in state.devices[n].items()},
                "releasingSharedGpus": {g: d.marked for g, d in state.devices[n].items()},
            },
        }

    def _amounts(self, vector: Any) -> Result:
        names = self.session.columns.index.names
        found = dict(zip(names, vector.tolist(), strict=True))
        return {
            "milliCpu": found.pop("cpu"),
            "memory": found.pop("memory"),
            "gpus": found.pop("gpu") / GPU_MICRO,
            "scalars": found,
        }

    def _allocated(self, job: Any) -> Result:
        session = self.session
        cpu, memory, gpu = session.allocated(Work(job))
        counted = session.tally(Work(job), IS_ALLOCATED)
        return {
            "milliCpu": cpu,
            "memory": memory,
            "gpus": gpu / GPU_MICRO,
            "scalars": {"pods": sum(counted)},
        }

    def _task(self, task: int) -> Result:
        session = self.session
        n = session.node_of(task)
        return {
            "status": build.status_name(TaskStatus(session.status[task])),
            "nodeName": "" if n == NO_ROW else session.nodes.columns.facts[n].name,
            "gpuGroups": list(session.groups_of(task)),
            "virtual": bool(session.virtual[task]),
        }


def trial_changes(case: Input, flags: Flags) -> Result:
    trial = Trial(case, flags)
    start = trial.picture()
    for name, raw in case["nodes"].items():  # the case says itself how the rows must count
        for key in ("idle", "used", "releasing"):
            found = _exact(start["nodes"][name][key], raw.get(key) or {}, f"{name}.{key}")
            assert found is None, f"before the first step: {found}"
    after = []
    for step in case["steps"]:
        error = trial.step(step)
        after.append({"error": error, **trial.picture()})
    return {"after": after}


def difference(got: Result, want: Input) -> str | None:
    """As `first_difference`; of nodes and jobs everything that is not 0 must be named."""
    for n, (mine, other) in enumerate(zip(got["after"], want["after"], strict=True)):
        at = f"after[{n}]"
        if (mine["error"] or None) != other.get("error"):
            return f"{at}.error: got {mine['error']!r}, want {other.get('error')!r}"
        for name, node in other["nodes"].items():
            found = _node_difference(mine["nodes"][name], node, f"{at}.{name}")
            if found:
                return found
        for name, job in other["jobs"].items():
            found = first_difference(mine["jobs"][name]["tasks"], job["tasks"], f"{at}.{name}")
            found = found or _exact(
                mine["jobs"][name]["allocated"],
                job.get("allocated") or {},
                f"{at}.{name}.allocated",
            )
            if found:
                return found
    return None


def _node_difference(got: Result, want: Mapping[str, Any], at: str) -> str | None:
    for key in ("idle", "used", "releasing"):
        found = _exact(got[key], want.get(key) or {}, f"{at}.{key}")
        if found:
            return found
    sharing = want.get("gpuSharing") or {}
    for key, value in got["gpuSharing"].items():
        found = exact_map(value, sharing.get(key) or {}, f"{at}.{key}")
        if found:
            return found
    return None


def _exact(got: Result, want: Mapping[str, Any], at: str) -> str | None:
    amounts = {key: value for key, value in got.items() if key != "scalars"}
    wanted = {key: value for key, value in want.items() if key != "scalars"}
    scalars = (got["scalars"], want.get("scalars") or {})
    return exact_map(amounts, wanted, at) or exact_map(*scalars, f"{at}.scalars")


OPS: dict[str, Run] = {"trialChanges": trial_changes}
