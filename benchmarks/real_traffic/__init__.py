"""Real traffic between network namespaces, seen as a NIC would count it.

plan         what ranks run, over which lines
fabric       namespaces, a bridge between them, shaped lines
connections  slices and credits over TCP
collectives  ring all-reduce and all-to-all over them
rank         the process of one rank, and what it logs
capture      packets with the kernel's time stamps
counting     packets as counts in epochs
telemetry    logs and counts as the records of agents
experiment   one run, from namespaces to records
judged       what the diagnosis makes of the records, beside what the ranks logged
"""
