# The simulated NCCL: ranks as threads, and as processes that its tests start.

file(GLOB simgpu_nccl_tests CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/*_test.cpp")
add_executable(simgpu_rank_program "${CMAKE_CURRENT_LIST_DIR}/rank_program.cpp")
target_link_libraries(simgpu_rank_program PRIVATE lockstep_simgpu_tests)
add_executable(test_simgpu_nccl ${simgpu_nccl_tests})
target_link_libraries(test_simgpu_nccl PRIVATE lockstep_simgpu_tests GTest::gtest_main GTest::gmock)
target_include_directories(test_simgpu_nccl PRIVATE "${PROJECT_SOURCE_DIR}/tests")
target_compile_definitions(test_simgpu_nccl PRIVATE
  LOCKSTEP_RANK_PROGRAM="$<TARGET_FILE:simgpu_rank_program>")
add_dependencies(test_simgpu_nccl simgpu_rank_program)
gtest_discover_tests(test_simgpu_nccl DISCOVERY_TIMEOUT 60
  PROPERTIES LABELS sim TIMEOUT 120 ENVIRONMENT LOCKSTEP_SIM_DEVICES=4)
add_dependencies(lockstep_sim_tests test_simgpu_nccl)
