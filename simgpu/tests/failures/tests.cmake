# lockstep on a simulated GPU whose libraries fail, or have several ways to go.

file(GLOB failure_tests CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/*_test.cpp")
add_executable(test_gpu_failures ${failure_tests})
target_link_libraries(test_gpu_failures PRIVATE lockstep_test_support lockstep_simgpu_tests
                      GTest::gtest_main)
target_compile_definitions(test_gpu_failures PRIVATE
  LOCKSTEP_JOB_PROGRAM="$<TARGET_FILE:comm_job_program>"
  LOCKSTEP_THIS_PROGRAM="$<TARGET_FILE:test_gpu_failures>" LOCKSTEP_MPIEXEC="${MPIEXEC_EXECUTABLE}")
add_dependencies(test_gpu_failures comm_job_program)
gtest_discover_tests(test_gpu_failures PROPERTIES LABELS sim TIMEOUT ${test_timeout}
                     DISCOVERY_TIMEOUT 60)
add_dependencies(lockstep_sim_tests test_gpu_failures)
