# Compiles .cu files by the C++ compiler for the simulated GPU. Installed with the package, for users
# who have .cu files of their own.

# lockstep_simulate_kernels(target [NO_TRANSLATION] file.cu...): adds .cu files to a target. CUDA C++
# that is no C++ (<<<>>>, extern __shared__) is translated, which takes Python 3.10; files that have
# none of it may go without (NO_TRANSLATION, for all of a target's files). Every access to memory
# calls a function of lockstep::simgpu, through the instrumentation of sanitizers whose runtimes are
# not linked; calls stay calls, as places in reports are their return addresses; large frames do not
# pass over the guard below a stack. Garbage is collected from half a gigabyte on, which saves a tenth of the time.
function(lockstep_simulate_kernels target)
  cmake_parse_arguments(PARSE_ARGV 1 option NO_TRANSLATION "" "")
  set_source_files_properties(${option_UNPARSED_ARGUMENTS} PROPERTIES
    LANGUAGE CXX SKIP_PRECOMPILE_HEADERS ON COMPILE_OPTIONS
    "-x;c++;-O2;-fno-optimize-sibling-calls;-fstack-clash-protection;--param=ggc-min-heapsize=524288;-fsanitize=thread;--param=tsan-instrument-func-entry-exit=0;--param=tsan-distinguish-volatile=1;-fsanitize=bounds,object-size,alignment;-Wno-attributes;-Wno-unknown-pragmas")
  target_sources(${target} PRIVATE ${option_UNPARSED_ARGUMENTS})
  if(NOT option_NO_TRANSLATION)
    lockstep_translate_kernels(${target})
  endif()
endfunction()

# Puts the translation before the compiler of a target's files; those that are no .cu files pass.
function(lockstep_translate_kernels target)
  get_target_property(launcher ${target} CXX_COMPILER_LAUNCHER)
  if(launcher MATCHES "compile\\.py")
    return()
  elseif(NOT launcher)
    set(launcher "")
  endif()
  find_package(Python3 3.10 REQUIRED COMPONENTS Interpreter)
  # Beside this file where lockstep is installed.
  find_program(compile compile.py NO_DEFAULT_PATH NO_CACHE REQUIRED
    PATHS "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/simgpu_compiler"
          "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../simgpu/compiler")
  set_property(TARGET ${target} PROPERTY CXX_COMPILER_LAUNCHER
    "${Python3_EXECUTABLE}" "${compile}" ${launcher})
endfunction()
