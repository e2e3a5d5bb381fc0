"""`python -m infra.app` synthesizes the templates into cdk.out, or into the folder that the CDK command names."""

import os
import sys

from pydantic import ValidationError

from infra.constructs.code import PackageForAnother
from infra.environment.context import ROOT, StageFileError
from infra.environment.resources import TooManyVariables
from infra.settings import PREFIX
from infra.stacks.build import build
from infra.wildcards import wildcards


def main() -> int:
    """Synthesize the templates; return 1 for a wildcard of actions on every resource, 2 for a wrong setting."""
    outdir = None if "CDK_OUTDIR" in os.environ else str(ROOT / "cdk.out")
    try:
        assembly = build(outdir=outdir).app.synth()
    except ValidationError as error:
        sys.stderr.write("".join(f"{line}\n" for line in wrong_settings(error)))
        return 2
    except (StageFileError, TooManyVariables) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except (FileNotFoundError, PackageForAnother) as error:
        sys.stderr.write(f"{PREFIX}package: {error}\n")
        return 2
    wide = [(stack.stack_name, wildcard) for stack in assembly.stacks for wildcard in wildcards(stack.template)]
    for stack_name, wildcard in wide:
        sys.stderr.write(f"{stack_name}{wildcard.path} allows {', '.join(wildcard.actions)} on *\n")
    return 1 if wide else 0


def wrong_settings(error: ValidationError) -> list[str]:
    """Return a line for each wrong setting: its name and what is wrong, without its value."""
    lines = []
    for each in error.errors(include_input=False, include_url=False):
        # An error about several settings has no location.
        names = [PREFIX + str(name).replace("_", "-") for name in each["loc"][:1]]
        lines.append(": ".join([*names, each["msg"].removeprefix("Value error, ")]))
    return lines


if __name__ == "__main__":
    sys.exit(main())
