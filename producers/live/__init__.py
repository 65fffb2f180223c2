"""The operator log of a live training process: appended to in shared memory, kept by the agent of its host.

``registration`` and ``ring`` are what the training process needs (standard library alone); the agent reads through
``ring_reader`` and ``rank_log``, and keeps closed iterations in ``segments``, as a log store in ``live_store``.
"""
