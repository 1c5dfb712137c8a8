"""disque-admin: what an operator does to queues, jobs and tasks, in words and tables."""
