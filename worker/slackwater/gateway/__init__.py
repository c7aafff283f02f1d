"""The HTTP door: submit, read, list, cancel, retry, streams, administration.

Rule: handlers own the protocol of HTTP and the caller's identity, nothing else; whatever decides or writes is the
store's.
"""
