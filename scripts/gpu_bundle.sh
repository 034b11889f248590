#!/usr/bin/env bash
# Everything that scripts/gpu_check.sh runs, built here for a machine that has a GPU and little else: no
# compiler, no MPI, no network. One archive, about 20 MB.
#
#   scripts/gpu_bundle.sh [--architectures 90-real] [OUT]       OUT: build-gpu/bundle.tar.gz
#
# cuDNN, cuBLASLt and NCCL stay where they are: on the machine, in a toolkit or in Python's wheels. A stand-in
# that refuses every call takes the place of one that is missing there, so that all else runs.
# Needs nvcc and the libraries' headers; where the simulated GPU's build exists (build-sim), the steps whose
# speed is predicted are recorded, which takes minutes. LOCKSTEP_GPU_PROFILES names a folder of such records.
source "$(dirname "$0")/lib.sh"
source scripts/gpu/pack.sh

architectures=90-real out=build-gpu/bundle.tar.gz
while [ $# -gt 0 ]; do
  case $1 in
    --architectures) architectures=$2 && shift ;;
    -*) fail "unknown option $1; usage: scripts/gpu_bundle.sh [--architectures LIST] [OUT]" ;;
    *) out=$(from_caller "$1") ;;
  esac
  shift
done
build_dir=${LOCKSTEP_BUNDLE_BUILD_DIR:-build-bundle}

tests='runtime memory tensor contract autograd optim random amp nn models data checkpoint io cudnn staged_threads
  comm_nccl ddp_nccl parallel_nccl comm_staged ddp_staged'
programs='describe_gpu lockstep_info lockstep_run benchmark_allreduce train_gpt train_mnist train_resnet
  compare_training lockstep_benchmarks'

need_dependencies
scripts/get_cudnn_frontend.sh
# One shared library for all programs; paths relative to them, for the libraries' own needs too.
LOCKSTEP_CUDA=ON configure "$build_dir" -DLOCKSTEP_CUDA_ARCHITECTURES="$architectures" \
  -DLOCKSTEP_ONEDNN=OFF -DBUILD_SHARED_LIBS=ON "-DCMAKE_LIBRARY_OUTPUT_DIRECTORY=$PWD/$build_dir/lib" \
  -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON "-DCMAKE_INSTALL_RPATH=\$ORIGIN/../lib" \
  "-DCMAKE_EXE_LINKER_FLAGS=${LDFLAGS:+$LDFLAGS }-Wl,--disable-new-dtags" \
  "-DCMAKE_SHARED_LINKER_FLAGS=${LDFLAGS:+$LDFLAGS }-Wl,--disable-new-dtags,-Bsymbolic-functions" \
  -DCMAKE_CUDA_FLAGS="-Xfatbin -compress-all" -DCMAKE_GTEST_DISCOVER_TESTS_DISCOVERY_MODE=PRE_TEST
# shellcheck disable=SC2046,SC2086
build "$build_dir" $(printf 'test_%s ' $tests) $programs

say "Packing"
bundle=$(mktemp -d)/lockstep-gpu
trap 'rm -rf "$(dirname "$bundle")"' EXIT
copy_programs "$build_dir" "$bundle"
copy_mpi "$bundle"
copy_system_libraries "$bundle"
make_stand_ins "$bundle"
copy_sources "$bundle"
copy_profiles "$bundle"
describe_bundle "$bundle" "$architectures"
mkdir -p "$(dirname "$out")"
tar -C "$(dirname "$bundle")" -czf "$out" lockstep-gpu
say "$out: $(du -k "$out" | cut -f1) KiB"
next "on the machine with the GPU:  OUT=results scripts/gpu_check.sh --bundle $out"
