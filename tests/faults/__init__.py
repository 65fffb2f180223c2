"""The fault campaign: the deployed pipeline on real services, and everything that may befall it.

python -m tests.faults --seed 1 --kills 50 --json
"""
