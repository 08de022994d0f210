"""The Python interpreters of this machine, for the part of the hook that needs no torch."""

import glob
import os
import shutil
import subprocess
import sys

WANTED = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13")


def _version_of(path):
    words = [path, "-I", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=20).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def found():
    """Version -> interpreter, each that really starts. Looks on PATH and where pyenv keeps them."""
    candidates = [sys.executable]
    for version in WANTED:
        on_path = shutil.which("python" + version)
        candidates += [on_path] if on_path else []
        pattern = os.path.expanduser("~/.pyenv/versions/%s.*/bin/python" % version)
        candidates += sorted(glob.glob(pattern), reverse=True)
    interpreters = {}
    for path in candidates:
        version = _version_of(path)
        if version in WANTED:
            interpreters.setdefault(version, path)
    return interpreters


def too_old():
    """Interpreters that the hook does not support and must not disturb."""
    paths = []
    for version in ("2.7", "3.6", "3.7"):
        paths += glob.glob(os.path.expanduser("~/.pyenv/versions/%s.*/bin/python" % version))[:1]
    return paths
