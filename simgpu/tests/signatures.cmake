# The headers of the simulated GPU declare what the real ones declare: the same sources, compiled
# against both. Compiling is the test.

file(GLOB signature_sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/signatures/*.cpp")

function(lockstep_add_signature_check target)
  add_library(${target} OBJECT ${signature_sources})
  target_compile_features(${target} PRIVATE cxx_std_20)
  set_target_properties(${target} PROPERTIES LOCKSTEP_COMPILE_ALONE ON)
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/simgpu/tests"
                             "${PROJECT_SOURCE_DIR}/simgpu/include/simgpu")
  target_link_libraries(${target} PRIVATE lockstep_flags ${ARGN})
endfunction()

lockstep_add_signature_check(lockstep_signatures_simulated)
target_include_directories(lockstep_signatures_simulated PRIVATE
                           "${PROJECT_SOURCE_DIR}/simgpu/include")

# The list is of these versions; older ones lack some of it.
if(TARGET CUDA::cudart AND TARGET CUDA::cublasLt AND CUDAToolkit_VERSION VERSION_GREATER_EQUAL 13
   AND TARGET Nccl::nccl AND NCCL_VERSION VERSION_GREATER_EQUAL 2.28)
  lockstep_add_signature_check(lockstep_signatures_real CUDA::cudart CUDA::cublasLt Nccl::nccl)
endif()
