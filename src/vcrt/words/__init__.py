"""Describe what was certified in sentences, cells and lines, for commands, pages and reports. Pure text."""
