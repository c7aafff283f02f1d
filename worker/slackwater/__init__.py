"""Slackwater's worker package: leases with epochs for long, paid work.

Task authors import from `slackwater.sdk` (re-exported here); everything else is for the worker, the gateway and the operator.
"""
