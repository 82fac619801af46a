"""Say what was certified in sentences, cells and lines: for commands, pages and reports alike. Text alone."""
