"""Freeze a plan, keep the ledger, evaluate once, and compute the statistics."""
