"""`python -m dispatch`."""

from dispatch.cli import main

if __name__ == "__main__":
    main()
