# The .cu files, as objects inside the library: consumers then link with plain C++. By nvcc,
# or by the C++ compiler for the simulated GPU.

file(GLOB lockstep_cuda_kernels CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/kernels/cuda/*.cu")

if(NOT LOCKSTEP_WITH_CUDA)
  return()
endif()

add_library(lockstep_cuda_kernels OBJECT)
target_include_directories(lockstep_cuda_kernels PRIVATE
  "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/kernels")
set_target_properties(lockstep_cuda_kernels PROPERTIES POSITION_INDEPENDENT_CODE ON)
target_sources(lockstep PRIVATE $<TARGET_OBJECTS:lockstep_cuda_kernels>)

if(LOCKSTEP_WITH_SIMGPU)
  lockstep_simulate_kernels(lockstep_cuda_kernels NO_TRANSLATION ${lockstep_cuda_kernels})
  target_compile_features(lockstep_cuda_kernels PRIVATE cxx_std_20)
  target_link_libraries(lockstep_cuda_kernels PRIVATE lockstep_flags lockstep_simgpu)
  target_sources(lockstep PRIVATE $<TARGET_OBJECTS:lockstep_simgpu_cudnn>)
  target_link_libraries(lockstep PRIVATE lockstep_simgpu)
else()
  target_sources(lockstep_cuda_kernels PRIVATE ${lockstep_cuda_kernels})
  set_target_properties(lockstep_cuda_kernels PROPERTIES
    CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON)
  # Relaxed constexpr: std::bit_cast and the like may be called in kernels.
  target_compile_options(lockstep_cuda_kernels PRIVATE
    --expt-relaxed-constexpr -Xcompiler=-Wall,-Wextra,-Wshadow)
  if(LOCKSTEP_WARNINGS_AS_ERRORS)
    target_compile_options(lockstep_cuda_kernels PRIVATE -Werror all-warnings -Xcompiler=-Werror)
  endif()
  target_link_libraries(lockstep PRIVATE CUDA::cudart CUDA::cublasLt)
  if(LOCKSTEP_WITH_NCCL)
    target_link_libraries(lockstep PRIVATE Nccl::nccl)
  endif()
  if(LOCKSTEP_WITH_CUDNN)
    # nvrtc: engines of cudnn-frontend that lockstep does not use, but that its headers compile.
    target_link_libraries(lockstep PRIVATE Cudnn::cudnn CUDA::nvrtc)
    # The plans are built once and cached, so the time to compile cudnn-frontend counts more than the
    # speed of its code: its headers, which take most of that time, are compiled once for all files.
    # GCC 12 at -O3 sees an overflow in them that is none.
    file(GLOB cudnn_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/*/cuda/cudnn/*.cpp")
    add_library(lockstep_cudnn OBJECT ${cudnn_sources})
    set_target_properties(lockstep_cudnn PROPERTIES
      POSITION_INDEPENDENT_CODE ON UNITY_BUILD ${LOCKSTEP_UNITY_BUILD} UNITY_BUILD_BATCH_SIZE 0)
    target_compile_features(lockstep_cudnn PRIVATE cxx_std_20)
    target_compile_options(lockstep_cudnn PRIVATE -O1 -Wno-stringop-overflow)
    target_include_directories(lockstep_cudnn PRIVATE
      "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/kernels")
    target_include_directories(lockstep_cudnn SYSTEM PRIVATE "${LOCKSTEP_CUDNN_FRONTEND_INCLUDE}")
    target_link_libraries(lockstep_cudnn PRIVATE lockstep_flags Cudnn::cudnn CUDA::cudart)
    target_sources(lockstep PRIVATE $<TARGET_OBJECTS:lockstep_cudnn>)
  endif()
endif()
