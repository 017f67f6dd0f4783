"""On the module path of a worker whose clock is wrong: by so many seconds as FENCING_SKEW_S says."""

import os
import time

_right, _skew_s = time.time, float(os.environ["FENCING_SKEW_S"])
time.time = lambda: _right() + _skew_s
