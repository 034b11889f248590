# The simulated GPU: a second implementation of the CUDA runtime, cuBLASLt and NCCL, which takes
# their place with LOCKSTEP_CUDA=SIMULATED. No CUDA toolkit is needed. Linux on x86-64.

if(LOCKSTEP_SANITIZE)
  message(FATAL_ERROR "LOCKSTEP_CUDA=SIMULATED cannot be combined with LOCKSTEP_SANITIZE: the "
          "simulated GPU answers the calls that the thread sanitizer has the compiler make.")
endif()
find_package(Boost 1.74 REQUIRED COMPONENTS context)

file(GLOB_RECURSE simgpu_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/simgpu/src/*.cpp")
list(FILTER simgpu_sources EXCLUDE REGEX "/simgpu/src/cudnn/")

# Line numbers in reports, where GCC's libbacktrace is at hand.
include(CheckCXXSourceCompiles)
set(CMAKE_REQUIRED_LIBRARIES backtrace)
check_cxx_source_compiles("#include <backtrace.h>
int main() { return backtrace_create_state(nullptr, 1, nullptr, nullptr) == nullptr; }"
  LOCKSTEP_HAS_LIBBACKTRACE)
unset(CMAKE_REQUIRED_LIBRARIES)
if(LOCKSTEP_HAS_LIBBACKTRACE)
  list(FILTER simgpu_sources EXCLUDE REGEX "/no_libbacktrace[^/]*\\.cpp$")
else()
  list(FILTER simgpu_sources EXCLUDE REGEX "/libbacktrace/")
endif()

add_library(lockstep_simgpu ${simgpu_sources})
add_library(lockstep::simgpu ALIAS lockstep_simgpu)
set_target_properties(lockstep_simgpu PROPERTIES EXPORT_NAME simgpu POSITION_INDEPENDENT_CODE ON)
# Its headers are for programs in C++17, too.
target_compile_features(lockstep_simgpu PUBLIC cxx_std_17 PRIVATE cxx_std_20)
target_include_directories(lockstep_simgpu
  PUBLIC "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/simgpu/include>"
         "$<INSTALL_INTERFACE:include/lockstep-simgpu>"
  PRIVATE "${PROJECT_SOURCE_DIR}/simgpu/src" "${PROJECT_SOURCE_DIR}/include")
target_compile_options(lockstep_simgpu PRIVATE
  "$<TARGET_PROPERTY:lockstep_flags,INTERFACE_COMPILE_OPTIONS>")
target_link_libraries(lockstep_simgpu PUBLIC Threads::Threads
                      PRIVATE Boost::context ${CMAKE_DL_LIBS} rt)
if(LOCKSTEP_HAS_LIBBACKTRACE)
  target_link_libraries(lockstep_simgpu PRIVATE backtrace)
endif()

# The stand-in for cuDNN becomes part of lockstep: it implements an interface of lockstep's own.
file(GLOB simgpu_cudnn_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/simgpu/src/cudnn/*.cpp")
add_library(lockstep_simgpu_cudnn OBJECT ${simgpu_cudnn_sources})
set_target_properties(lockstep_simgpu_cudnn PROPERTIES POSITION_INDEPENDENT_CODE ON)
target_compile_features(lockstep_simgpu_cudnn PRIVATE cxx_std_20)
target_include_directories(lockstep_simgpu_cudnn PRIVATE
  "${PROJECT_SOURCE_DIR}/simgpu/src" "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/include"
  "${PROJECT_SOURCE_DIR}/kernels")
target_link_libraries(lockstep_simgpu_cudnn PRIVATE lockstep_flags lockstep_simgpu)

include(LockstepSimulatedKernels)
