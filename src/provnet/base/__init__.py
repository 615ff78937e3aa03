"""What every room may use."""

__version__ = "0.2.0"  # of provnet; it is written nowhere else
