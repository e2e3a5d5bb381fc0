"""The process that rotates the secret in Polaris."""
