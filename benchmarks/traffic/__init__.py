"""Figures of what is found in the traffic of NICs (Pulse).

busy_host     what the agents of a host tell whose NICs send over many queue pairs at once
plan          which runs: the combinations of table 4 and those beyond, healthy ones; settings that nothing was tuned on
detection     what the pipeline says of a run; it sees the telemetry alone
scoring       what was said, beside the truth, by the definitions of Pulse 8.1
trial         one run from its seed to its score
boundaries    where operators begin and end by their NIC's traffic, beside where they truly did
figures       all scores as counts with intervals
straggler     one slow NIC: what epochs of several lengths show of it, and by how little it may be slow
"""
