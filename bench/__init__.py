"""The figures of docs/measured.md, measured again: `python -m bench`, and `pipeline.py` and `sync.py` by themselves."""
