"""Write the explorer: one page to look at certified episodes, and at what training makes of their orders."""
