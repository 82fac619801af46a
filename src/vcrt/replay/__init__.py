"""Replay steps in all orders, in worker processes, and keep what was answered."""
