# Case 37 (a) (kueue#5243): GPUs scattered over nodes are of no use to a job of a whole node.
node n1 gpus=8
node n2 gpus=8
node n3 gpus=8
node n4 gpus=8
queue q quota=32
group high queue=q priority=90 pods=24x1gpu running@n1,n2,n3,n4
group low  queue=q priority=50 pods=8x1gpu min=1 running@n1,n2,n3,n4
group want queue=q priority=90 pods=1x8gpu
cycle: nothing
