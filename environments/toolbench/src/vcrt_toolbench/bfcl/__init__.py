"""BFCL: the simulators of the Berkeley Function-Calling Leaderboard's multi-turn tasks as the verifier."""
