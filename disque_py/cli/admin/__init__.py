"""disque-admin: an operator's commands for queues, jobs, tasks and schedules."""
