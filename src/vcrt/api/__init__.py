"""Offer the commands as functions; :mod:`vcrt` itself exports them.

Each puts together what the rooms to the left offer. Paths are strings or ``Path``; every error of bad input is a
:class:`vcrt.errors.VcrtError`; nothing is printed, and progress goes where it is asked to.
"""
