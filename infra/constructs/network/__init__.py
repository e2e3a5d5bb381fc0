"""The two network profiles: the VPC with its endpoints and load balancer, and the domains of the API."""
