#!/usr/bin/env bash
# Walks the drivers of the frameworks that are set up here through the protocol with LeNet, those of PyTorch, JAX and TensorFlow also
# with the networks that are written by hand, their answers held to Tandem's, and holds published networks to torchvision and transformers where these are installed beside PyTorch.
#   peers_test.sh TANDEM TANDEM_LAB
set -uo pipefail
tandem=$1 lab=$2
home=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
environments=$home/.venv-peers
# The walker needs NumPy and TOML, which the environment of PyTorch or JAX has.
walker=
for name in pytorch jax; do
  python=$environments/$name/bin/python
  if [[ -x $python ]] && "$python" -c 'import numpy, tomllib' 2>/dev/null; then walker=$python && break; fi
done
if [[ -z $walker ]]; then
  echo "SKIPPED: no framework is set up here; tandem lab setup pytorch makes one"
  exit 77
fi

failed=0
whole=deepspeech2_small,gnmt_small,seq2seq_small,tacotron2_small
walk() {  # NAME COMMAND...
  local name=$1 log workloads=lenet
  shift
  case $name in pytorch.py | jax_.py | tensorflow_.py) workloads=lenet,$whole ;; esac
  if log=$("$walker" "$home/drivers/test_driver.py" --tandem "$tandem" --threads 2 --workloads $workloads -- "$@" --against "$lab" driver 2>&1); then
    echo "$name: $(tail -n 1 <<<"$log")"
  else
    printf '%s\n%s: FAILED\n' "$log" "$name"
    failed=1
  fi
}
for entry in pytorch:pytorch.py jax:jax_.py tensorflow:tensorflow_.py tensorflow:keras_.py onnxruntime:onnxruntime_.py \
  mxnet:mxnet_.py chainer:chainer_.py theano:theano_.py; do
  python=$environments/${entry%%:*}/bin/python
  if [[ -x $python ]]; then walk "${entry#*:}" "$python" "$home/drivers/${entry#*:}"; else echo "SKIPPED: ${entry#*:}, not set up"; fi
done
[[ -x $home/build-peers/libtorch_driver ]] && walk libtorch "$home/build-peers/libtorch_driver"
python=$environments/pytorch/bin/python
if [[ -x $python ]]; then "$python" "$home/drivers/test_published.py" --tandem "$tandem" || failed=1; fi
exit $failed
