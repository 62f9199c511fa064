"""The steps of the probe (`../probe.py`), which call NVIDIA's libraries by ctypes, without Foreload's code."""
