"""Write the explorer: one page that shows certified episodes, and how training changes the probability of orders."""
