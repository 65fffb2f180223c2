"""Holmes 4.4 and D: how much an operator's slowness explains the iteration's, accumulated on devices.

irregularity_rate   what one irregularity counts
prior               how often each kind of device is at fault
devices             devices by the evidence of many irregularities
"""
