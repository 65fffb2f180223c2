"""Jobs of thousands of ranks, whose logs are worked out only where somebody looks.

plan          which runs: seeds, faults, layouts, noise
observed      a run through the pipeline, with the simulator's time apart
volume        how many bytes all ranks' logs would be, told from a few of them
rankings      devices by all findings of a run, with and without the prior and the decay
baselines     what three sigma and a random walk make of the same iterations
trial         one run from its seed to its score
figures       all scores as counts with intervals
latency       seconds from the last record of an irregular iteration to the stored finding
"""
