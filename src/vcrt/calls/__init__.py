"""Read logs of tool calls; certify, schedule and annotate them."""
