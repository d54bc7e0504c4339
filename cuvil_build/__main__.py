"""`cuvil` and `python -m cuvil_build`: sees that a build has nothing to do before it loads anything."""

from __future__ import annotations

import os
import sys

from cuvil_build.plan import state


def main() -> int:
    argv = sys.argv[1:]
    if argv[:1] == ["build"]:
        line = state.up_to_date(argv[1:], dict(os.environ))
        if line is not None:
            print(line)
            return 0
    from cuvil_build.cli.main import main as run  # after the test: it loads everything else

    return run(argv)


if __name__ == "__main__":
    sys.exit(main())
