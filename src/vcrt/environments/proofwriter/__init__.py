"""ProofWriter: forward chaining over rule theories as the verifier."""
