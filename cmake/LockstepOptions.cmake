# What a user may choose, and the defaults of a top-level build.

set(LOCKSTEP_CUDA AUTO CACHE STRING "GPU support: AUTO (if a toolkit is found), ON, OFF, SIMULATED")
set_property(CACHE LOCKSTEP_CUDA PROPERTY STRINGS AUTO ON OFF SIMULATED)
option(LOCKSTEP_NCCL "GPUs exchange data over NCCL, if found; else through the host" ON)
option(LOCKSTEP_MPI "Ranks and CPU collectives over MPI, if found" ON)
option(LOCKSTEP_ONEDNN "CPU products and convolutions by oneDNN, if found" ON)
option(LOCKSTEP_OPENMP "Threads inside CPU ops" ON)
option(LOCKSTEP_BUILD_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(LOCKSTEP_BUILD_EXAMPLES "Build the examples" ${PROJECT_IS_TOP_LEVEL})
option(LOCKSTEP_BUILD_TOOLS "Build and install lockstep_run and lockstep_checkpoint" ${PROJECT_IS_TOP_LEVEL})
option(LOCKSTEP_BUILD_BENCHMARKS "Build the benchmarks" ${PROJECT_IS_TOP_LEVEL})
option(LOCKSTEP_INSTALL "Set up cmake --install and the CMake package" ${PROJECT_IS_TOP_LEVEL})
option(LOCKSTEP_WARNINGS_AS_ERRORS "Treat warnings of lockstep's own code as errors" OFF)
set(LOCKSTEP_SANITIZE "" CACHE STRING "Sanitizers for -fsanitize=, such as address,undefined")
set(LOCKSTEP_CUDA_ARCHITECTURES "80;90" CACHE STRING "GPU architectures to compile for")

# Headers that many files of tests and examples include are precompiled, but not beside ccache, which
# would keep no object of them.
if(CMAKE_CXX_COMPILER_LAUNCHER MATCHES "ccache$")
  set(CMAKE_DISABLE_PRECOMPILE_HEADERS ON)
endif()

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
endif()
