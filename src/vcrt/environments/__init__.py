"""Define what can be replayed: the contract, its conformance kit, the guard around each call, tool calls."""
