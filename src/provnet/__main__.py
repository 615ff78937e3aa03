"""`python -m provnet` is the command line."""

from provnet.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
