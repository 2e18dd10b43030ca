# KAI#1750: an unrelated queue below its quota sorts first as victim and poisons every scenario.
node node-protected gpus=2
node node-batch-1   gpus=2
node node-batch-2   gpus=2
node node-spare     gpus=1
queue root            quota=10
queue org-parent      parent=root       quota=6 priority=110
queue reclaimer-queue parent=org-parent quota=4 priority=75
queue batch-queue     parent=org-parent quota=0 priority=25
queue protected-queue parent=root       quota=4 priority=100
group protected queue=protected-queue pods=1x2gpu running@node-protected
group batch-1   queue=batch-queue     pods=1x2gpu running@node-batch-1
group batch-2   queue=batch-queue     pods=1x2gpu running@node-batch-2
group reclaimer queue=reclaimer-queue pods=1x2gpu
actions reclaim
cycle: evict batch-2-0; pipeline reclaimer-0@node-batch-2
