"""Slackwater's operator: WorkerPools become pods, and a pod goes only when its leases are gone.

Rule: what decides (spec … status) is pure and knows no I/O; what acts (kube, leases, act) decides nothing.
"""
