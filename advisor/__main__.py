"""The entry point of the command line, also for ``python -m advisor`` with a chosen interpreter."""

import sys

_INTERRUPTED = 130
"""Exit code of a program that Ctrl-C ends, in a shell."""


def main() -> None:
    """Run the command line; Ctrl-C ends it without a traceback while modules are imported, too."""
    try:
        from advisor.cli.app import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
