"""The machines below the communication library: line rates, latencies, buffers, and what counts on the NIC."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.errors import SettingsError

MIB = 1 << 20
KIB = 1 << 10


@dataclass(frozen=True, slots=True)
class Hardware:
    """Everything that traffic takes, but for the faults; times in seconds, rates in bytes a second.

    ``slice_bytes`` is the most that is handed over at once, ``slots`` how many slices a connection buffers at each
    end. ``latency_s`` passes from a transmission's end until the other host's proxy may see it, and is the time step
    of the simulation as well: nothing acts on anything else earlier. ``control_bytes`` is a message that tells of a
    free buffer. ``resend_bytes`` is the most that one lost packet makes a NIC send again, ``resend_after_s`` what it
    waits for an answer, twice as long each time.
    Raises ``SettingsError`` for what cannot be simulated.
    """

    line_gbps: float = 400.0
    channels: int = 2
    slice_bytes: int = MIB
    slots: int = 8
    slices_per_chunk: int = 2
    latency_s: float = 4e-6
    gpu_bytes_per_s: float = 60e9
    gpu_slice_s: float = 1.5e-6
    proxy_s: float = 1.2e-6
    mtu_bytes: int = 4096
    header_bytes: int = 66
    control_bytes: int = 130
    low_latency_bytes: int = 64 * KIB
    low_latency_128_bytes: int = MIB
    tree_bytes: int = 16 * MIB
    loss_share: float = 2e-4
    resend_bytes: int = 256 * KIB
    resend_after_s: float = 0.067
    resends: int = 7
    epoch_ns: int = 32_000
    aggregation_bytes: int = 4096
    unit_bytes: int = 32

    def __post_init__(self) -> None:
        if self.epoch_ns % self.step_ns:
            raise SettingsError(f"hardware: epoch_ns is {self.epoch_ns}; give a multiple of {self.step_ns}")
        if not 0.1 <= self.line_gbps <= 10_000:
            raise SettingsError(f"hardware: line_gbps is {self.line_gbps}; give 0.1 to 10,000")
        if not 1 <= self.channels <= 32 or not 2 <= self.slots <= 64:
            raise SettingsError("hardware: give 1 to 32 channels and 2 to 64 slots")
        if self.slice_bytes > MIB or self.slice_bytes < self.mtu_bytes:
            raise SettingsError(f"hardware: slice_bytes is {self.slice_bytes}; give {self.mtu_bytes} to {MIB}")

    @property
    def line_bytes_per_s(self) -> float:
        """What a NIC sends, and receives, at most."""
        return self.line_gbps * 1e9 / 8

    @property
    def step_ns(self) -> int:
        """The time step."""
        return round(self.latency_s * 1e9)

    @property
    def epoch_steps(self) -> int:
        """Time steps of an epoch."""
        return self.epoch_ns // self.step_ns

    @property
    def overhead(self) -> float:
        """Bytes on the wire for each byte of a slice."""
        return 1 + self.header_bytes / self.mtu_bytes

    def protocol(self, size: int) -> Protocol:
        """How an operator of so many bytes is sent."""
        if size <= self.low_latency_bytes:
            return Protocol("LL", 2.0, 16 * KIB, 1)
        if size <= self.low_latency_128_bytes:
            return Protocol("LL128", 128 / 120, 128 * KIB, self.channels)
        return Protocol("Simple", 1.0, self.slice_bytes, self.channels)


@dataclass(frozen=True, slots=True)
class Protocol:
    """Bytes sent for each byte of data (flags travel along), the largest slice of data, and over how many channels."""

    name: str
    expansion: float
    slice_bytes: int
    channels: int
