"""`slackwater dev`: everything in one command, for whoever writes tasks. Rule: the same gateway, worker, PostgreSQL and
protocol as in production, only small; what works here works there.
"""
