# As case 6 with a quota that is large enough.
node n gpus=2 gpu_memory=10000
queue q quota=1.2
group g queue=q priority=100 pods=1x6000mib+2dev
cycle: bind g-0@n
