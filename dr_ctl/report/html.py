"""Places a run's view on one self-contained HTML page."""
from pathlib import Path
from dr_ctl.engine.runs import RunFiles
def write_report(files: RunFiles) -> Path:
    return files.report
