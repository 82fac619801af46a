"""Write and read the sealed audit view, the anonymous policy view, and frozen datasets of both; run no verifier."""
