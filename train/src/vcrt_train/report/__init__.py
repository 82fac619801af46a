"""Tables, figures and the self-contained page."""
