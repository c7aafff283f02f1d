"""What the demo and the end-to-end tests share: drive a cluster, watch pods, and judge by the provider's own log.

Rule: it uses what a user has (the API server, the gateway, the provider's log); the product's tables are read only to
ask "was a lease held when this pod went", never to decide whether work was lost or paid twice.
"""
