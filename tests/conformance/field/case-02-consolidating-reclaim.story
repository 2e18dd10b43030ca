# KAI PR#1565: an over-served queue restarts an under-served one to make room for itself.
node n1 gpus=4
node n2 gpus=4
node n3 gpus=4
node n4 gpus=4
queue a quota=4
queue b quota=8
group a-runs queue=a pods=6x1gpu min=0 running@n1,n1,n1,n2,n2,n2
group b-1 queue=b pods=1x1gpu running@n1
group b-2 queue=b pods=1x1gpu running@n2
group b-3 queue=b pods=1x1gpu running@n3
group b-4 queue=b pods=1x1gpu running@n4
group a-asks queue=a pods=1x4gpu
actions reclaim
cycle: nothing
reason a-asks over deserved, would disrupt a queue below deserved
