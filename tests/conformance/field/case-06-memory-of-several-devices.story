# KAI#1369: a request for memory of several devices was charged for one of them.
node n gpus=2 gpu_memory=10000
queue q quota=1
group g queue=q priority=100 pods=1x6000mib+2dev
cycle: nothing    # 2 x 0.6 is more than the quota of a job that cannot be preempted
