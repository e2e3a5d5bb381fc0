from typing import Final

VERSION: Final = "0.1.0"
"""The release that runs: the installed package's version, which a Lambda bundle does not have."""
