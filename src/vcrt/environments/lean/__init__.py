"""Lean 4: the elaborator and the kernel as the verifier."""
