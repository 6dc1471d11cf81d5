#!/usr/bin/env bash
# On a machine with a CUDA device: the GPU tests, then the benchmark; writes one results file with the card's name.
#
#   tests/benchmarks/gpu.sh [FOLDER [SCAN...]]        # FOLDER: default gpu-results; SCAN: fully sampled, as of evaluate
#
# FOLDER gets CARD.md (what to keep), results.json, scaling.png, gpu-tests.txt and rows.jsonl; run again, it goes on.
# Nothing is installed. Exit code: 0 all well, 1 a test or the benchmark failed (what there is, is written), 2 misuse.
#
# PYTHON              interpreter that has torch and what pyproject.toml names (default: .venv's, else python3)
# TEST_SECONDS        most time for the tests (default 240)
# BENCH_SECONDS       most time for the benchmark (default 600)
# BENCH_OPTIONS       more options of `gadgetron-ebm bench`, separated by spaces, such as "--case paper --peers"
# DRY_RUN=1           the same on the CPU, with small sizes and none of the tests, to try the script itself
set -uo pipefail
exec < /dev/null

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd) || exit 2
folder=${1:-gpu-results}
shift || true
scans=()
for scan in "$@"; do
  [ -r "$scan" ] || { echo "gpu.sh: there is no scan $scan." >&2; exit 2; }
  scans+=("$(realpath "$scan")")
done
mkdir -p "$folder" || { echo "gpu.sh: the folder $folder cannot be made." >&2; exit 2; }
folder=$(cd "$folder" && pwd)
cd "$repository" || exit 2

dry_run=${DRY_RUN:-}
python=${PYTHON:-}
if [ -z "$python" ]; then
  python=python3
  [ -x .venv/bin/python ] && python=.venv/bin/python
fi
export PYTHONPATH="$repository${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 MPLBACKEND=Agg

if ! "$python" -c 'from gadget.commands.bench import bench; import gadget.benchmark.run'; then
  echo "gpu.sh: $python lacks packages that pyproject.toml names; install them, or set PYTHON." >&2
  exit 2
fi
if ! card=$("$python" - "$dry_run" << 'PYTHON'
import sys
import torch
if torch.cuda.is_available():
    print(torch.cuda.get_device_name())
elif sys.argv[1]:
    print("dry run on the CPU")
else:
    sys.exit("gpu.sh: torch sees no CUDA device here; DRY_RUN=1 tries the script on the CPU.")
PYTHON
); then
  exit 2
fi
device=cuda
options=()
if [ -n "$dry_run" ]; then
  card="dry run on the CPU"
  device=cpu
  options=(--quick)
fi
read -r -a more <<< "${BENCH_OPTIONS:-}"
results="$folder/$(printf '%s' "$card" | tr -cs '[:alnum:]' '-' | sed 's/^-//; s/-$//').md"
failed=0

echo "gpu.sh: $card; results go to $results" >&2
tests="not run: a dry run"
if [ -z "$dry_run" ]; then
  timeout --kill-after=10 "${TEST_SECONDS:-240}" \
    "$python" -m pytest tests -m gpu -q -o addopts= -p no:cacheprovider > "$folder/gpu-tests.txt" 2>&1
  status=$?
  tests=$(tail -n 1 "$folder/gpu-tests.txt")
  case $status in
    0) ;;
    5) tests="there are none"; failed=1 ;;
    124 | 137) tests="stopped after ${TEST_SECONDS:-240} s"; failed=1 ;;
    *) failed=1 ;;
  esac
  echo "gpu.sh: tests: $tests" >&2
fi

rm -f "$folder/results.md" # one of another run; rows that hold are read, not measured again
timeout --kill-after=10 "${BENCH_SECONDS:-600}" \
  "$python" -c 'from gadget.cli import main; main()' bench ${scans[@]+"${scans[@]}"} --device "$device" --out "$folder" \
  ${options[@]+"${options[@]}"} ${more[@]+"${more[@]}"} > "$folder/bench.txt" 2>&1
status=$?
if [ $status -ne 0 ]; then
  failed=1
  reason="it failed ($status): $(tail -n 1 "$folder/bench.txt")"
  if [ $status -eq 124 ] || [ $status -eq 137 ]; then
    reason="it was stopped after ${BENCH_SECONDS:-600} s; run gpu.sh again with the same folder, and it goes on"
  fi
  echo "gpu.sh: benchmark: $reason" >&2
fi

{
  printf '# %s\n\n' "$card"
  if command -v nvidia-smi > /dev/null; then
    printf '* driver: %s\n' "$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n 1)"
  fi
  printf '* commit: %s\n' "$(git rev-parse --short HEAD 2> /dev/null || echo unknown)"
  printf '* GPU tests: %s\n' "$tests"
  if [ $status -ne 0 ]; then
    printf '* benchmark: %s\n' "$reason"
  fi
  if [ -f "$folder/results.md" ]; then
    printf '\n'
    sed 's/^#/##/' "$folder/results.md"
  fi
} > "$results.part" && mv "$results.part" "$results"
echo "gpu.sh: written: $results" >&2
exit $failed
