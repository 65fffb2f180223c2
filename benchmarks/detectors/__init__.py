"""How well and how fast abnormal operators are told.

per_job     detectors that learn from runs of a job and judge others of it, the generic model beside them
drifting    a month in which everything takes longer, with and without tuning
speed       judging ten thousand operators
figures     counts as F1 with its interval
"""
