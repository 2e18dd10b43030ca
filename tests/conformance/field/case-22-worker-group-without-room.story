# KAI#500: a cluster started although one of its worker groups could not.
node n1 gpus=8
queue q quota=8
group ray queue=q
sub ray head min=1 pods=1x1cpu
sub ray g1 min=1 pods=3x1gpu
sub ray g2 min=1 pods=3x99gpu
cycle: nothing
reason ray g2
