"""Measure how anonymous policy records are: what a probe can guess of them beyond their relations."""
