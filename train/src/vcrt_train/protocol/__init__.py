"""Freeze a plan, write the ledger, evaluate once, and compute the statistics."""
