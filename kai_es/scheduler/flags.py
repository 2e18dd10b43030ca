"""Rule flags: each brings back one behaviour of the reference that is not ours by default.

`CycleInputs.flags` holds those in force, sorted; `--compat` = `ALL`. One row per flag stands in
`docs/differences.md`. A stored history keeps the flags it was made with, so a flag is never
renamed or given another meaning. Numbers `Qn` are the reference's known quirks
(scheduler-core §17), `Pn` those of the plugins' checklist (plugins §14), `Fn` those of fairness.
"""

from typing import Final, TypeAlias

Flags: TypeAlias = frozenset[str]

GROUPS_BY_NAME: Final = "compat.Q1"
"""Pod groups are told apart by name alone, pods of any namespace join them."""
QUEUE_DEPTH_SLOT: Final = "compat.Q6"
"""A full leaf queue drops the last slot of its heap instead of its worst job."""
GPU_MEMORY_NOT_COMPARED: Final = "compat.Q9"
"""The "easier job" test and equal requests ignore GPU memory."""
SECOND_EVICTION_FAILS: Final = "compat.Q10"
"""A pod that is evicted twice in one cycle goes on to weigh in its queue."""
UNDO_LEAKS_SHARES: Final = "compat.Q12"
"""Undoing the move of a victim to another device of its node leaves its old share counted, and a
pod that found no place is shown with the devices that were tried."""
CONSOLIDATION_ANY_VICTIMS: Final = "compat.Q13"
"""Bounded consolidation tries one set of jobs, whether moving them helps or not."""
STALE_EVERY_POD_SET: Final = "compat.Q23"
"""A gang is stale as soon as any pod set is short, whatever `minSubGroup` says."""
GANG_EVERY_POD_SET: Final = "compat.Q24"
"""A solved search counts only if every pod set has its minimum, whatever `minSubGroup` says."""
GANG_MEMBERS_BY_ORDER: Final = "compat.Q25"
"""The members that form a gang are taken by order, not by whether they have enough pods."""
BUDGET_ENDS_ACTION: Final = "compat.Q26"
"""A job whose search runs out of budget ends the action for every later job."""
EXTENDED_NOT_SERVED: Final = "compat.Q28"
"""A resource that only a device class serves fits nowhere, unless it is a GPU."""
GPUS_NOT_SERVED: Final = "compat.Q29"
"""A request for whole GPUs goes to a node whose GPUs no device class serves to it."""
EXTENDED_NOT_ASSUMED: Final = "compat.Q30"
"""Devices promised to a pod's extended resources are free until the binder has made the claim."""
TOPOLOGY_COUNTS_RUNNING: Final = "compat.Q31"
"""The topology filter of victim scenarios adds up running tasks too."""
DRA_WEIGHS_NOTHING: Final = "compat.Q36"
"""A DRA request weighs no GPU in the capacity check of one node."""
EXTENDED_NOT_FREED: Final = "compat.Q37"
"""Evicting a pod frees no devices of its extended resources within the cycle."""

LARGEST_NOT_SHOWN: Final = "compat.P8"
"""Of other resources than GPUs, CPU, memory and storage the largest node is said to have none."""
SKIPPED_FOR_GOOD: Final = "compat.P4"
"""A pod that no other bore on when it was first tried is not asked again in the cycle."""
REQUIRED_LEVEL_MISSED: Final = "compat.P13"
"""A required level without a preferred one fails when all nodes share a narrower domain."""
PREFERRED_SCORES_COARSE: Final = "compat.P14"
"""Of more than ten domains of a preferred level several score alike."""
LEVEL_ERRORS_HIDDEN: Final = "compat.P15"
"""A topology constraint that names no level, or an unknown one, gives no reason."""
SHARED_ROOM_MISSED: Final = "compat.P16"
"""Topology domains do not count most of the room on shared devices."""

DISPLACED_COUNTS: Final = "compat.C2"
"""A task that waits, or was placed in this cycle, and is displaced counts as leaving its node."""
RETURN_RESTORES_MOVE: Final = "compat.C3"
"""A moved pod that is offered its old node gets its new one back, whoever is there by then."""
PINNED_BY_ASKING: Final = "compat.C10"
"""Only running pods of the pod sets that ask for more keep a sub-group in its topology domain."""
LEAVING_PODS_STAY: Final = "compat.C11"
"""Affinity, anti-affinity and host ports take pods that leave for staying, also for who waits."""
SIGNATURES_WITHOUT_LABELS: Final = "compat.C12"
"""Jobs whose pods differ in labels alone fail alike, also where others keep away by labels."""
VICTIMS_ON_FEASIBLE_NODES: Final = "compat.C13"
"""A victim gets a new place only on nodes that the job it gives way to could use."""
DOMAINS_BY_ROOM_ALONE: Final = "compat.C14"
"""A domain where pods would wait for what leaves is as good as one where they could start."""
SIGNATURES_WITHOUT_ZONES: Final = "compat.C20"
"""Jobs whose pods NUMA zones treat otherwise count as alike, so one that fails hides the next."""
ZONES_ANEW: Final = "compat.C21"
"""A victim that stays on its node is restarted if other zones would be chosen for it today."""
LEAVING_ZONES_FREE: Final = "compat.P30"
"""NUMA zones of pods that leave count as free at once."""
ROOM_IS_FOR_ALL: Final = "compat.C15"
"""Room that was made for a job is for whoever comes first in the next cycle."""
LACK_HIDES_REFUSAL: Final = "compat.C16"
"""A node that lacks resources is counted for that alone, though it refuses the pod anyway."""
SHARES_IN_WHOLE_DEVICES: Final = "compat.C1"
"""Fair shares are shown in whole devices from one device on."""

SHARES_TAKE_TWO_SLOTS: Final = "compat.C4"
"""A pod that joins a device which is shared already needs a second pod slot too."""

CONSOLIDATING_RECLAIM_FREE: Final = "compat.F1"
"""Reclaim may restart pods of anybody who gets a new place, and shields no leaf queue."""
ROUNDING_TO_LOWER_BAND: Final = "compat.F2"
"""Fractions of a device lost in one priority band go to the next lower band first."""
LEFTOVER_OVER_REQUEST: Final = "compat.F3"
"""A left-over unit is handed out whole, even above a queue's request or limit."""
WEAKER_QUEUE_PARTIAL: Final = "compat.F4"
"""Queues with incomparable allocatable shares count as equal, so the order has cycles."""
TASK_PRIORITY_BOTH_BAD: Final = "compat.F5"
"""Of two pods with unreadable task priorities the right one is first, whichever way asked."""
GENERATOR_DEFAULT_UNREACHED: Final = "compat.F6"
"""A configured generator budget `default` does not reach the two shipped generators."""

ALL: Final[Flags] = frozenset(
    value for name, value in globals().items() if name.isupper() and isinstance(value, str)
)
NONE: Final[Flags] = frozenset()
