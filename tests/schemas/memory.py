"""What Arrow allocates, seen from outside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

_pools: list[pa.MemoryPool] = []
"""Every pool that was ever used: it must outlive the buffers that came from it, and a traceback may hold those."""


def new_pool() -> pa.MemoryPool:
    """A pool that counts only what is allocated from it."""
    _pools.append(pa.proxy_memory_pool(pa.default_memory_pool()))
    return _pools[-1]


@contextmanager
def allocating_at_most(limit: int) -> Iterator[None]:
    """Fail where Arrow's memory grows by more at any time."""
    before, pool = pa.default_memory_pool(), new_pool()
    pa.set_memory_pool(pool)
    try:
        yield
    finally:
        pa.set_memory_pool(before)
    assert pool.max_memory() <= limit
