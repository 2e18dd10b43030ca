# KAI#1939 as the reference does: the CPU-only victim dies although a CPU node is free.
node gpu-node gpus=1 cpu=2
node cpu-node gpus=0 cpu=4
node idle-gpu-node gpus=1 cpu=0.1
queue a quota=0 cpu_quota=0
queue b quota=1 cpu_quota=2
group gpu-victim queue=a pods=1x1gpu+1cpu running@gpu-node
group cpu-victim queue=a pods=1x1cpu running@gpu-node
group asks queue=b pods=1x1gpu+2cpu
flags all
cycle: evict gpu-victim-0 cpu-victim-0; pipeline asks-0@gpu-node
