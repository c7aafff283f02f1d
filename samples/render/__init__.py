"""A paid, slow render: a provider stub that logs every call, and the tasks that use it."""
