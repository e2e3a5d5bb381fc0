"""`python -m infra.package`; its page of help has the options."""

import sys

from infra.package.build import main

if __name__ == "__main__":
    sys.exit(main())
