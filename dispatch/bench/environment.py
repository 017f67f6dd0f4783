"""What the figures were measured on."""

from __future__ import annotations

import gc
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

from harness import HostMeasures

_CPUINFO = Path("/proc/cpuinfo")


def environment() -> dict[str, Any]:
    """Interpreter, machine and its load, as JSON values. `cores` are those this process may use."""
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": _processor(),
        "cores": HostMeasures().cores,
        "load_average": round(os.getloadavg()[0], 2),
        "gc_threshold": list(gc.get_threshold()),
        "pykka": version("pykka"),
        "slice_dispatch": version("slice-dispatch"),
    }


def _processor() -> str:
    try:
        lines = _CPUINFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())
