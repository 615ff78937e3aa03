"""Tests that need other packages: `make integrations`."""
