"""AgentDojo: the tools and environments of its suites as the verifier."""
