"""Accuracy on simulated runs.

plan          which runs: seeds, stories, noise
detection     what the pipeline says of a run; it sees the telemetry alone
published     Algorithm 1 as published, on one iteration
rankings      devices ranked over iterations, by the pipeline's search and by Algorithm 1, as the view does
scoring       what was said, beside the truth
trial         one run from its seed to its score
workers       several runs at the same time
finished      the scores of finished runs, kept in a file
figures       all scores as counts with intervals
"""
