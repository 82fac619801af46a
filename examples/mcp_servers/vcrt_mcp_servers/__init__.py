"""Four published MCP servers as environments of vcrt, with samplers that draw calls of every tool."""
