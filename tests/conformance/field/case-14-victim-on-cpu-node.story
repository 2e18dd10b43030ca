# Case 14 (KAI#1939): a victim without GPUs moves to a node that the reclaimer could never use.
node cpu-node gpus=0 cpu=8
node gpu-node gpus=1 cpu=2
node idle-gpu-node gpus=1 cpu=0.1
queue reclaimer quota=1
queue victims quota=0
group victim queue=victims pods=1x1gpu+0.5cpu running@gpu-node
group victim-cpu queue=victims pods=1x1cpu running@gpu-node
actions reclaim
group wants queue=reclaimer pods=1x1gpu+1.5cpu
cycle: evict victim-0; move victim-cpu-0@cpu-node; pipeline wants-0@gpu-node
