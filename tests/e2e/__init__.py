"""End-to-end tests: real nodes, real store, the shipped images and manifests; judged by the paid provider's log."""
