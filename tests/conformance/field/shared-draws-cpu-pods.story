# A pod without GPUs goes where GPUs are shared, though another node is fuller: so more fits in all.
node n1 gpus=2 cpu=16
node n2 gpus=2 cpu=16
queue q quota=4
group full queue=q priority=50 pods=1x4cpu running@n1
group half queue=q priority=50 pods=1x0.5gpu running@n2
group g queue=q priority=50 pods=1x1cpu
cycle: bind g-0@n2
