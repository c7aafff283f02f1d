"""Slackwater's worker package: leases with epochs for long, paid work.

Rule: task authors import from `slackwater.sdk` alone; everything else is for the worker, the gateway and the operator.
"""
