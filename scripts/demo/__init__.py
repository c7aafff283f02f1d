"""`make demo`: a rolling update, a killed worker and two scalings under load, and a verdict by the provider's own log.

Rule: it does what a person would do (kubectl, HTTP) on a real cluster, and what it claims it read off the provider.
"""
