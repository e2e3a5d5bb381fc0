"""What is deployed: the functions, their environment variables, and the settings of cdk.json; nothing here needs Node.

CDK and the local stack both read it; a test compares the synthesized template with it.
"""
