"""Mutants: each takes one guard out of the code, and a test must fail. Rule: one that nobody notices is a fault."""
