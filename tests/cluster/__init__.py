"""A real Kubernetes of several nodes on one Linux machine, for the end-to-end tests and the demo.

Rule: everything an instance makes carries its name, so that `down` finds it without any record of what was done.

A node is a network, pid, mount and uts namespace with its own containerd, kubelet and kube-proxy. etcd and the
control plane live in the network namespace `cp`, which is also the nodes' switch and where a test process joins in.
Nothing is reachable from, or sends to, the machine's own network.
"""
