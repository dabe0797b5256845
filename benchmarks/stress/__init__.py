"""Stress: kills, damaged run directories, bad input, a full disk, two processes on one directory."""
