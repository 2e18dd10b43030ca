# KAI#416: memory of one card was given out twice. 23 x 2000 MiB fit on 46000, the 24th does not.
node n gpus=1 gpu_memory=46000
queue q quota=2
group g queue=q priority=50 min=1 pods=24x2000mib
cycle: bind g-0@n; bind g-1@n; bind g-2@n; bind g-3@n; bind g-4@n; bind g-5@n; bind g-6@n; bind g-7@n; bind g-8@n; bind g-23@n; bind g-10@n; bind g-11@n; bind g-12@n; bind g-13@n; bind g-14@n; bind g-15@n; bind g-16@n; bind g-17@n; bind g-18@n; bind g-19@n; bind g-20@n; bind g-21@n; bind g-22@n
cycle: nothing
