"""Compute layers in bfloat16 faster on processors that have instructions for it."""
