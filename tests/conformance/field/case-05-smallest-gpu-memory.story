# KAI#1847: pending gpu-memory requests were charged against a device of 100 MiB.
node n gpus=1 gpu_memory=40960
queue q quota=0
group g queue=q pods=1x2000mib
actions reclaim
cycle: nothing
share q 0.0489    # 2000 / 40900
