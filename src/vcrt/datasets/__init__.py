"""Make, verify and examine datasets: run verifiers, and write or compare their answers."""
