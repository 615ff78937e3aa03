"""Reports: plain records in, one self-contained HTML page or one picture out. Nothing here knows torch or a run."""
