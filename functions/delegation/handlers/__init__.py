"""The entry points of Lambda functions."""

import gc
import os

# Imports create no garbage: collecting it took a tenth of a cold start.
gc.set_threshold(150_000, *gc.get_threshold()[1:])
# The package has no plugin of Pydantic: searching for one reads what is installed.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
