"""The steps of the probe (`../probe.py`): NVIDIA's libraries by ctypes, with nothing of Foreload's code in between."""
