"""The rule of the proxy in front of the catalog: which requests lead to the gateway, for ALB, nginx and Envoy."""
