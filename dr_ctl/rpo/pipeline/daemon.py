"""Spark's Python workers are forked from this process, which imports once what each of them needs."""

from pyspark.daemon import manager

from dr_ctl.rpo.pipeline import hours

__all__ = ["hours"]

if __name__ == "__main__":
    manager()
