"""The outbox's way out: to the webhooks that an administrator configured, signed, in order per task, at least once."""
