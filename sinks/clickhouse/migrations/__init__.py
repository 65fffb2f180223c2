"""The store's schema as numbered steps forward, ``NNNN_name.sql``; ``migrate.py`` applies them.

A step that was applied anywhere is never edited: the next change is the next number. Its statements end with ``;``
at the end of a line, and each can be run again: a run that was cut short starts with the unfinished step anew.
"""
