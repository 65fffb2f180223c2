"""Figures of what is found in the traffic of NICs (Pulse).

busy_host     what the agents of a host tell whose NICs send over many queue pairs at once
"""
