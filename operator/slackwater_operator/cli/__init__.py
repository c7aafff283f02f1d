"""`kubectl slackwater`: what a person asks of a pool, and wishes for it.

Rule: the API server alone, with the caller's own kubeconfig and rights. It writes only what its caller could write by
hand (a field of the spec, the annotation of a drain); the operator does the rest, so every wish is as safe as its own.
"""
