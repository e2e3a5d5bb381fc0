"""The entry point that rotates the secret in Polaris."""
