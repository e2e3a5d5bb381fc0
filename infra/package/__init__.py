"""The packages of code and dependencies for Lambda functions and Spark jobs; `python -m infra.package` builds them."""
