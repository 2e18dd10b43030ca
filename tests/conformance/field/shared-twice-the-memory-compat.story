# The reference puts it on one device.
flags compat.Q7
node n gpus=2 gpu_memory=10000
queue q quota=4
group g queue=q priority=50 pods=1x20000mib
cycle: bind g-0@n
