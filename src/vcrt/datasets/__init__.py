"""Make, verify and ask about datasets: whatever runs a verifier and writes or compares what it said."""
