"""Offer the commands as functions; :mod:`vcrt` itself exports them.

Each function combines the packages below this one. Paths are strings or ``Path``; every error of bad input is a
:class:`vcrt.errors.VcrtError`; nothing is printed, and progress goes to the ``progress`` argument.
"""
