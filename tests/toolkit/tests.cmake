# The library and its headers against the real libraries, and what cuDNN itself can say of plans for
# GPUs that are not there.

add_dependencies(lockstep_toolkit_tests lockstep)
if(LOCKSTEP_BUILD_TOOLS)
  # They are installed with it.
  add_dependencies(lockstep_toolkit_tests lockstep_run lockstep_checkpoint)
endif()
if(TARGET lockstep_signatures_real)
  add_dependencies(lockstep_toolkit_tests lockstep_signatures_real)
endif()
if(LOCKSTEP_BUILD_EXAMPLES)
  # Its libraries load, and there is no GPU. The other programs are no GPU code: the suite builds them.
  add_dependencies(lockstep_toolkit_tests lockstep_info)
  add_test(NAME Toolkit.ProgramsRunWithoutGpu COMMAND lockstep_info)
  set_tests_properties(Toolkit.ProgramsRunWithoutGpu PROPERTIES LABELS toolkit TIMEOUT ${test_timeout})
endif()

if(LOCKSTEP_WITH_CUDNN)
  add_executable(test_cudnn "${CMAKE_CURRENT_LIST_DIR}/plans_test.cpp")
  target_link_libraries(test_cudnn PRIVATE lockstep_golden GTest::gtest_main)
  gtest_discover_tests(test_cudnn TEST_FILTER "-*Gpu.*" DISCOVERY_TIMEOUT 120
                       PROPERTIES LABELS toolkit TIMEOUT ${test_timeout})
  gtest_discover_tests(test_cudnn TEST_FILTER "*Gpu.*" TEST_LIST test_cudnn_gpu
                       DISCOVERY_TIMEOUT 120 PROPERTIES LABELS gpu TIMEOUT ${test_timeout})
  add_executable(describe_gpu "${CMAKE_CURRENT_LIST_DIR}/describe_gpu.cpp")
  target_link_libraries(describe_gpu PRIVATE lockstep_test_support)
  add_dependencies(lockstep_toolkit_tests test_cudnn describe_gpu)
endif()

# Bytes wrap as on the CPU: through i64, not by the instruction that clamps. By a file: nvcc does not
# end where it writes to a pipe.
add_test(NAME Toolkit.FloatsBecomeBytesThatWrap
         COMMAND sh -c "\"$@\" -o conversions.ptx && cat conversions.ptx" sh
                 "${CMAKE_CUDA_COMPILER}" -std=c++20 -arch=sm_90 --expt-relaxed-constexpr
                 "-I${PROJECT_SOURCE_DIR}/include" "-I${PROJECT_SOURCE_DIR}/kernels"
                 "-I${PROJECT_BINARY_DIR}/generated" -ptx "${CMAKE_CURRENT_LIST_DIR}/conversions.cu")
set_tests_properties(Toolkit.FloatsBecomeBytesThatWrap PROPERTIES LABELS toolkit TIMEOUT ${test_timeout}
  PASS_REGULAR_EXPRESSION "cvt.rzi.s64.f32")

# No kernel of a step of GPT-2 spills registers. Compiled once more for that, as a release is: what
# .ci/run has built is not optimised. Here the files of row kernels and optimizers, some 50 s of
# processor time; all files take 140 s (ctest --test-dir build-toolkit -R Spill).
find_package(Python3 COMPONENTS Interpreter REQUIRED)
set(spills "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/spills.py" "${PROJECT_BINARY_DIR}")
add_test(NAME Toolkit.KernelsOfRowsDoNotSpill
         COMMAND ${spills} --files norm.cu norm_backward.cu cross_entropy.cu embedding.cu multi_tensor.cu optimizer.cu)
set_tests_properties(Toolkit.KernelsOfRowsDoNotSpill PROPERTIES LABELS toolkit TIMEOUT ${slow_test_timeout})
add_test(NAME Toolkit.KernelsDoNotSpill COMMAND ${spills})
set_tests_properties(Toolkit.KernelsDoNotSpill PROPERTIES LABELS slow TIMEOUT ${slow_test_timeout})
