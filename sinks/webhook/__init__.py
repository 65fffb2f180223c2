"""Paging: incidents become signed HTTP requests to whoever is on call.

``sink.py`` decides what is sent and when, ``delivery.py`` makes one attempt, ``retry.py`` says how long to keep
trying. A receiver is one module that turns a page into a request (``receiver.py`` is its shape): a new kind of
receiver needs nothing else.
"""
