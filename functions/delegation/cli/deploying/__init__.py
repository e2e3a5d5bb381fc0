"""`delegation deploy-check`: what a deployment would destroy, or could not do, before it begins."""
