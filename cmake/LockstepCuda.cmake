# GPU support. Sets LOCKSTEP_WITH_{CUDA,NCCL,CUDNN,SIMGPU}.
#
# CUDA needs nvcc, cudart and cuBLASLt. NCCL and cuDNN are used where found; cuDNN also needs the
# headers of cudnn-frontend (scripts/get_cudnn_frontend.sh), which no distribution packages.
# libcuda is never linked: the library must load on machines without a driver.

function(lockstep_tell_of_nccl)
  if(NOT LOCKSTEP_WITH_NCCL)
    message(STATUS "lockstep: no NCCL in this build (LOCKSTEP_NCCL is ${LOCKSTEP_NCCL}): GPUs exchange "
            "their data through the host")
  endif()
endfunction()

set(LOCKSTEP_WITH_CUDA OFF)
set(LOCKSTEP_WITH_NCCL OFF)
set(LOCKSTEP_WITH_CUDNN OFF)
set(LOCKSTEP_CUDNN_FRONTEND_DIR "" CACHE PATH "Folder that holds cudnn_frontend.h")
set(LOCKSTEP_WITH_SIMGPU OFF)
if(NOT LOCKSTEP_CUDA)
  return()
endif()
if(LOCKSTEP_CUDA STREQUAL "SIMULATED")
  set(LOCKSTEP_WITH_CUDA ON)
  set(LOCKSTEP_WITH_NCCL ${LOCKSTEP_NCCL})
  set(LOCKSTEP_WITH_SIMGPU ON)
  # Reports name functions and lines, whatever the build type says of debug information: compressed, it halves
  # programs, of which a suite has many.
  string(APPEND CMAKE_CXX_FLAGS " -g1 -gz -fno-optimize-sibling-calls")
  lockstep_tell_of_nccl()
  return()
endif()

set(CMAKE_CUDA_ARCHITECTURES ${LOCKSTEP_CUDA_ARCHITECTURES})
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(LOCKSTEP_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH
               PATHS /usr/local/cuda PATH_SUFFIXES bin)
  mark_as_advanced(LOCKSTEP_NVCC)
  if(LOCKSTEP_NVCC)
    set(CMAKE_CUDA_COMPILER "${LOCKSTEP_NVCC}")
  endif()
endif()
include(CheckLanguage)
check_language(CUDA)
if(CMAKE_CUDA_COMPILER)
  enable_language(CUDA)
  find_package(CUDAToolkit 12.1 QUIET)  # kernels with 32 KiB of arguments
endif()

if(TARGET CUDA::cudart AND TARGET CUDA::cublasLt)
  set(LOCKSTEP_WITH_CUDA ON)
elseif(NOT LOCKSTEP_CUDA STREQUAL "AUTO")
  message(FATAL_ERROR "LOCKSTEP_CUDA=${LOCKSTEP_CUDA}, but no CUDA toolkit 12.1 or later with nvcc, "
          "cudart and cuBLASLt was found. Install one, point CUDAToolkit_ROOT at it, "
          "or configure with -DLOCKSTEP_CUDA=OFF.")
else()
  return()
endif()

# CMake 3.25 does not know these options of nvcc 12 and later.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()

if(LOCKSTEP_NCCL)
  find_package(Nccl 2.18 QUIET)
  set(LOCKSTEP_WITH_NCCL ${Nccl_FOUND})
endif()
lockstep_tell_of_nccl()

find_package(Cudnn 9 QUIET)
find_path(LOCKSTEP_CUDNN_FRONTEND_INCLUDE cudnn_frontend.h
          HINTS "${LOCKSTEP_CUDNN_FRONTEND_DIR}" "${LOCKSTEP_CUDNN_FRONTEND_DIR}/include"
                "${PROJECT_BINARY_DIR}/cudnn-frontend/include"
                "$ENV{HOME}/.cache/lockstep/cudnn-frontend/include")
mark_as_advanced(LOCKSTEP_CUDNN_FRONTEND_INCLUDE)
if(Cudnn_FOUND AND LOCKSTEP_CUDNN_FRONTEND_INCLUDE)
  set(LOCKSTEP_WITH_CUDNN ON)
else()
  message(STATUS "lockstep: no cuDNN plans in this build (cuDNN 9 found: ${Cudnn_FOUND}; "
          "cudnn-frontend headers: run scripts/get_cudnn_frontend.sh, then configure again)")
endif()
