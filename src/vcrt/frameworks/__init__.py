"""Take tools from agent frameworks as they are."""
