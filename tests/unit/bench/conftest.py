"""The benchmarks are no package of the distribution: they are found where the repository is."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))
