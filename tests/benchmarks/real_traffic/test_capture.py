"""Frames of the kernel's ring are read as packets with data."""

from __future__ import annotations

import struct
from ipaddress import IPv4Address

import numpy as np

from benchmarks.real_traffic.capture import FRAME, Packets, flow_key

TCP, UDP = 6, 17
PORTS = (9, 4, 7)
"""Devices that the lines of three ranks end at."""


def frame(device: int, *, data: int = 100, protocol: int = 0x0800, transport: int = TCP, words: int = 8) -> bytes:
    """A frame from 10.0.0.1:1111 to 10.0.0.2:2222 at 3.000000005 s, as linux/if_packet.h and the RFCs lay it out."""
    kernel = struct.pack("=IIIHHIIHH4x", 1, 0, 0, 66, 80, 3, 5, 0, 0)
    link_address = struct.pack("=HHiHBB8x", 17, 0, device, 1, 3, 6)
    ethernet = struct.pack("!6x6xH", protocol)
    length = 20 + 4 * words + data
    addresses = IPv4Address("10.0.0.1").packed + IPv4Address("10.0.0.2").packed
    ip = struct.pack("!BBHHHBBH", 0x45, 0, length, 0, 0, 64, transport, 0) + addresses
    tcp = struct.pack("!HHIIBBHHH", 1111, 2222, 0, 0, words << 4, 0, 0, 0, 0)
    whole = (kernel + link_address).ljust(66, b"\0") + ethernet + ip + tcp
    return whole.ljust(FRAME.itemsize, b"\0")


def packets(*frames: bytes) -> Packets:
    return Packets.of(np.frombuffer(b"".join(frames), dtype=FRAME), PORTS)


def test_a_packet_tells_when_and_how_much_which_line_sent_to_whom() -> None:
    read = packets(frame(4), frame(7, data=4096), frame(9))
    assert read.nic.tolist() == [1, 2, 0]
    assert read.time_ns.tolist() == [3_000_000_005] * 3
    assert read.size.tolist() == [152, 4148, 152]
    assert read.flow.tolist() == [flow_key("10.0.0.2", 1111, 2222)] * 3


def test_what_carries_no_data_of_a_rank_is_left_out() -> None:
    others = (
        frame(4, data=0),  # an acknowledgement
        frame(4, protocol=0x0806),
        frame(4, transport=UDP),
        frame(5),  # of a device that is no line
    )
    assert packets(*others, frame(4)).size.tolist() == [152]
    assert not len(packets(*others).size)


def test_flows_differ_in_peer_and_in_either_port() -> None:
    flows = {
        flow_key(*ends) for ends in (("10.0.0.2", 1, 2), ("10.0.0.3", 1, 2), ("10.0.0.2", 2, 1), ("10.0.0.2", 2, 2))
    }
    assert len(flows) == 4
