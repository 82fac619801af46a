"""Rocq (Coq): its own state machine and kernel as the verifier, over its standard library."""
