# Compiles .cu files by the C++ compiler for the simulated GPU. Installed with the package, for users
# who have .cu files of their own.

# lockstep_simulate_kernels(target file.cu...): adds .cu files to a target. Every access to memory
# calls a function of lockstep::simgpu, through the instrumentation of sanitizers whose runtimes are
# not linked.
function(lockstep_simulate_kernels target)
  set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CXX SKIP_PRECOMPILE_HEADERS ON COMPILE_OPTIONS
    "-x;c++;-O2;-fsanitize=thread;--param=tsan-instrument-func-entry-exit=0;--param=tsan-distinguish-volatile=1;-fsanitize=bounds,object-size;-Wno-attributes")
  target_sources(${target} PRIVATE ${ARGN})
endfunction()
