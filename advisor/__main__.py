"""``python -m advisor``: the command line with a chosen interpreter."""

from advisor.cli.app import main

if __name__ == "__main__":
    main()
