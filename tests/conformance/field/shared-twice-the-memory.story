# A device has its memory once: twice of it is not to be had.
node n gpus=2 gpu_memory=10000
queue q quota=4
group g queue=q priority=50 pods=1x20000mib
cycle: nothing
