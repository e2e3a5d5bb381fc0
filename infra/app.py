"""`python -m infra.app` synthesizes the templates into cdk.out, or into the folder that the CDK command names."""

import os
import sys

from infra.environment import ROOT
from infra.stacks.build import build
from infra.wildcards import wildcards


def main() -> int:
    """Synthesize the templates; return 1 if one of them allows a wildcard of actions on every resource."""
    outdir = None if "CDK_OUTDIR" in os.environ else str(ROOT / "cdk.out")
    assembly = build(outdir=outdir).app.synth()
    found = [(stack.stack_name, wildcard) for stack in assembly.stacks for wildcard in wildcards(stack.template)]
    for stack_name, wildcard in found:
        sys.stderr.write(f"{stack_name}{wildcard.path} allows {', '.join(wildcard.actions)} on *\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
