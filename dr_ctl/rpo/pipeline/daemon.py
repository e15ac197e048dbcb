"""The process that Spark's Python workers are forked from: what each of them needs is imported once."""

from pyspark.daemon import manager

from dr_ctl.rpo.pipeline import hours

__all__ = ["hours"]

if __name__ == "__main__":
    manager()
