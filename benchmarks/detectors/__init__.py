"""How well and how fast abnormal operators are told.

comparison   detectors that learn from iterations of a job and judge others of it, the generic model beside them
large_jobs   labelled operators of jobs of thousands of ranks
drifting     a month in which everything takes longer, with and without tuning
large_trial  one such job through all of that
small_jobs   jobs of which all logs are judged
recordings   recordings of real processes
speed        judging ten thousand operators
figures      counts as F1 with its interval
"""
