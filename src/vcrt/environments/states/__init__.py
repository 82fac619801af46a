"""Copy an environment's objects, and write what they hold in a form that can be compared."""
