"""`python -m structgen` is the command `structgen`."""

from structgen.cli import main

if __name__ == "__main__":
    main()
