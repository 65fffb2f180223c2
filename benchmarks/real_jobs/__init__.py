"""Real training jobs over Gloo, each rank a process between network namespaces, some with a slow GPU or NIC.

plan         what jobs there are, and what may be wrong with them
schedule     what a rank does in an iteration
rank         the process of one rank, which logs as any training loop may
recorded     one job, from namespaces to what its ranks logged
judged       whom the diagnosis names, beside whom the plan made slow
"""
