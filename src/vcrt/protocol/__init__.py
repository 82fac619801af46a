"""The frozen plan, the ledger, the evaluation and its statistics."""
