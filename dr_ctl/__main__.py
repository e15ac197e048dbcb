"""`python -m dr_ctl`: the same as the `dr-ctl` command."""

from dr_ctl.cli.app import main

if __name__ == "__main__":
    main()
