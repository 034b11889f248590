# shellcheck shell=bash
# What scripts/gpu_bundle.sh packs; sourced. Each function fills a part of the folder BUNDLE.

# Of every Linux machine, or of the machine with the GPU.
system_library='^(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util)\.so.*|linux-vdso.*)$'
nvidia_library='^lib(cuda|cudart|cublas|cublasLt|cudnn|nccl|nvrtc|cupti)\.so'
# Parts of Open MPI for networks and launchers that a single machine has none of.
unused_plugin='ofi|ucx|uct|openib|verbs|psm|portals|slurm|alps|tm|lsf|gridengine|lustre|monitoring|cuda|treematch'

copy_programs() { # BUILD BUNDLE
  mkdir -p "$2/bin" "$2/lib"
  cp "$1"/bin/* "$2/bin"
  cp "$1"/lib/lib*.so "$2/lib"
  strip "$2"/bin/* "$2"/lib/*
}

# Open MPI says itself where it lies; place.py tells it where that is on the other machine.
open_mpi_folder() { ompi_info --path "$1" --parsable | sed 's/.*://'; }

copy_mpi() { # BUNDLE
  local mpi=$1/mpi plugin
  mkdir -p "$mpi/bin" "$mpi/plugins" "$mpi/etc" "$mpi/share" "$mpi/pmix"
  cp "$(readlink -f "$(command -v mpirun)")" "$mpi/bin/mpirun"
  cp "$(command -v orted)" "$mpi/bin"
  for plugin in "$(open_mpi_folder pkglibdir)"/*.so; do
    [[ $(basename "$plugin") =~ $unused_plugin ]] || cp "$plugin" "$mpi/plugins"
  done
  cp "$(open_mpi_folder sysconfdir)/openmpi-mca-params.conf" "$mpi/etc"
  cp "$(open_mpi_folder pkgdatadir)"/*.txt "$mpi/share"
  for plugin in /usr/lib/*/pmix2/lib/pmix/*.so; do
    [[ ! -e $plugin || $(basename "$plugin") =~ $unused_plugin ]] || cp "$plugin" "$mpi/pmix"
  done
}

# Shared libraries that any file of the bundle needs, and those need in turn: the compiler's where only the
# bundle's programs find them, for others on the machine may need newer ones; Open MPI's where place.py says.
copy_system_libraries() { # BUNDLE
  local name path folder
  mkdir -p "$1/mpi/lib"
  while read -r name path; do
    if [[ $name =~ $system_library || $name =~ $nvidia_library || -e $1/lib/$name ]]; then continue; fi
    folder=$1/mpi/lib
    [[ ! $name =~ ^lib(stdc|gcc_s|gomp|z\.) ]] || folder=$1/lib
    cp -L "$path" "$folder/$name"
  done < <(LD_LIBRARY_PATH=$1/lib ldd "$1"/bin/* "$1"/lib/*.so "$1"/mpi/bin/* "$1"/mpi/plugins/*.so \
    "$1"/mpi/pmix/*.so 2>/dev/null | awk '$2 == "=>" && $3 ~ /^\// {print $1, $3}' | sort -u)
}

needed_by() { readelf -d "$@" 2>/dev/null | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort -u; }

# nvidia_needs BUNDLE: the libraries of NVIDIA's that the programs load.
nvidia_needs() { needed_by "$1"/bin/* "$1"/lib/liblockstep.so "$1"/lib/libkernel_times.so | grep -E "$nvidia_library"; }

# A library that refuses: of each function that the bundle calls, an error, no version, or a word.
write_stand_in() { # LIBRARY REAL_PATH FOLDER BUNDLE
  local symbols versions
  symbols=$(comm -12 \
    <(nm -D --defined-only "$2" | awk '{sub("@@", "@", $3); print $3}' | sort -u) \
    <(nm -D --undefined-only "$4"/lib/*.so "$4"/bin/* 2>/dev/null | awk 'NF == 2 {print $2}' | sort -u))
  versions=$(sed -n 's/.*@//p' <<<"$symbols" | sort -u)
  {
    local symbol name
    for symbol in $symbols; do
      name=${symbol%%@*}
      case $name in
        *String | *LastError) echo "const char* $name(void) { return \"$1 is not on this machine\"; }" ;;
        cudnnGet*Version | cublasLtGet*Version) echo "unsigned long $name(void) { return 0; }" ;;
        *) echo "int $name(void) { return 1; }" ;;
      esac
    done
  } >"$3/stand_in.c"
  if [ -n "$versions" ]; then echo "$versions { global: *; };" >"$3/map"; else echo "{ global: *; };" >"$3/map"; fi
  cc -shared -fPIC -O1 -o "$3/$1" -Wl,-soname,"$1" -Wl,--version-script="$3/map" "$3/stand_in.c"
  rm "$3/stand_in.c" "$3/map"
}

# CUDA's runtime and CUPTI are small: they are carried, and stand in for themselves.
carried_library='^lib(cudart|cupti)\.'
make_stand_ins() { # BUNDLE
  local library path
  for library in $(nvidia_needs "$1"); do
    path=$(ldconfig -p | awk -v l="$library" '$1 == l && !found {print $NF; found = 1}')
    [ -n "$path" ] || path=$(dirname "$(dirname "$(PATH=$PATH:/usr/local/cuda/bin command -v nvcc)")")/lib64/$library
    mkdir -p "$1/stand-in/$library"
    if [[ $library =~ $carried_library ]]; then
      cp -L "$path" "$1/stand-in/$library/$library"
    else
      write_stand_in "$library" "$path" "$1/stand-in/$library" "$1"
    fi
  done
}

# What programs and scripts read of the source tree.
copy_sources() { # BUNDLE
  tar -c --exclude='*_test.cpp' --exclude=__pycache__ scripts/gpu scripts/gpu_check.sh simgpu/profile benchmarks/peers \
    tests/data tests/parity src/autograd/ops | tar -x -C "$1"
}

# The steps whose kernels are compared with what is predicted: as they are recorded for that.
copy_profiles() { # BUNDLE
  local program=${LOCKSTEP_SIM_BUILD_DIR:-build-sim}/bin/benchmark_model_step step model dtype batch
  mkdir -p "$1/profiles"
  for step in gpt2-bf16-64 gpt2-autocast-64 resnet50-autocast-256 vit-autocast-256; do
    IFS=- read -r model dtype batch <<<"$step"
    local file=$1/profiles/$step.jsonl
    if [ -n "${LOCKSTEP_GPU_PROFILES:-}" ]; then
      cp "$LOCKSTEP_GPU_PROFILES/$(basename "$file")"* "$1/profiles" ||
        fail "$LOCKSTEP_GPU_PROFILES has no $(basename "$file")"
    elif [ -x "$program" ]; then
      say "Recording a step of $model in $dtype"
      LOCKSTEP_SIM_DEVICES=1 LOCKSTEP_SIM_PROFILE=$file LOCKSTEP_SIM_EXECUTE=sample \
        LOCKSTEP_SIM_MEMORY=85899345920 "$program" --model "$model" --dtype "$dtype" --batch "$batch" --steps 3
    else
      say "No simulated GPU's build: no step is predicted (build benchmark_model_step in build-sim first)"
    fi
  done
  gzip -f "$1"/profiles/*.jsonl 2>/dev/null || true
}

describe_bundle() { # BUNDLE ARCHITECTURES
  local needs carries
  needs=$(nvidia_needs "$1" | sed 's/.*/"&"/' | paste -sd, -)
  carries=$(nvidia_needs "$1" | grep -E "$carried_library" | sed 's/.*/"&"/' | paste -sd, -)
  printf '{"commit": "%s", "architectures": "%s", "compiler": "%s", "glibc": "%s", "needs": [%s], "carries": [%s]}\n' \
    "$(git describe --always --dirty)" "$2" \
    "$(PATH=$PATH:/usr/local/cuda/bin nvcc --version | sed -n 's/.*release \([0-9.]*\).*/nvcc \1/p')" \
    "$(getconf GNU_LIBC_VERSION | cut -d' ' -f2)" "$needs" "$carries" >"$1/bundle.json"
}
