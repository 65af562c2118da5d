#!/bin/sh
# Everything to be known of a CUDA machine, in less than 8 minutes and without a network: parity with the C
# engine, env steps/s at 1024, 4096 and 16384 worlds, and a training of 3 minutes. PYTHON names the interpreter
# of an environment with '.[gpu]' and a torch that has CUDA.
set -eu
cd "$(dirname "$0")/.."
python="${PYTHON:-.venv/bin/python}"
command -v "$python" > /dev/null || { echo "bench/gpu.sh: no $python: make it, or set PYTHON" >&2; exit 1; }
exec "$python" bench/gpu.py "$@"
