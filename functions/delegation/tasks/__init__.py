"""The core of the service: tasks, their life and their stores. It imports nothing of Iceberg, HTTP or AWS compute."""
