#!/usr/bin/env bash
# Tests lab/drivers/frame: its own tests, and a driver in NumPy walked through small networks, its answers held to Tandem's.
#   frame_test.sh TANDEM_LAB
set -euo pipefail
lab=$1
home=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
for python in "$home"/.venv-peers/{pytorch,jax}/bin/python python3; do
  if "$python" -c 'import numpy, tomllib' 2>/dev/null; then
    "$python" "$home/tests/frame/frame_test.py"
    exec "$python" "$home/drivers/test_driver.py" --kinds -- "$python" "$home/tests/frame/numpy_driver.py" --against "$lab" driver
  fi
done
echo "SKIPPED: no Python 3.11 with NumPy is here"
exit 77
