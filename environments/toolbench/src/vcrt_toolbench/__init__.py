"""Replay the tool calls of two benchmarks, BFCL and AgentDojo."""
