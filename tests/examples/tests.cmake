# The example programs, run as a user would run them. What starts ranks has "Mpi" in its name.

if(NOT LOCKSTEP_BUILD_EXAMPLES)
  return()
endif()

file(GLOB example_tests CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/*_test.cpp")
add_executable(test_examples ${example_tests})
target_link_libraries(test_examples PRIVATE lockstep_golden run_support GTest::gtest_main)
target_compile_definitions(test_examples PRIVATE
  LOCKSTEP_BIN="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}" LOCKSTEP_MPIEXEC="${MPIEXEC_EXECUTABLE}"
  LOCKSTEP_TEXT="${PROJECT_SOURCE_DIR}/LICENSE" LOCKSTEP_HOSTS="${PROJECT_SOURCE_DIR}/tests/support/hosts.sh"
  LOCKSTEP_CHECKPOINT_JOB="$<TARGET_FILE:checkpoint_job>"
  LOCKSTEP_GOLDEN="${PROJECT_SOURCE_DIR}/tests/data/golden")
add_dependencies(test_examples train_gpt train_mnist train_resnet mnist dcgan benchmark_allreduce lockstep_info
                 lockstep_checkpoint lockstep_run checkpoint_job)
gtest_discover_tests(test_examples NO_PRETTY_VALUES TEST_FILTER "-*OnGpus*:*Mpi*:*Slow*" DISCOVERY_TIMEOUT 120
  PROPERTIES LABELS mpi TIMEOUT ${test_timeout} ENVIRONMENT ${lockstep_without_gpu})
gtest_discover_tests(test_examples NO_PRETTY_VALUES TEST_FILTER "*.Slow*" TEST_LIST test_examples_slow
  DISCOVERY_TIMEOUT 120
  PROPERTIES LABELS slow TIMEOUT ${slow_test_timeout} ENVIRONMENT ${lockstep_without_gpu})
if(LOCKSTEP_WITH_MPI)
  gtest_discover_tests(test_examples NO_PRETTY_VALUES TEST_FILTER "*Mpi*-*OnGpus*:*Slow*"
    TEST_LIST test_examples_mpi DISCOVERY_TIMEOUT 120
    PROPERTIES LABELS mpi TIMEOUT ${test_timeout} PROCESSORS 2 ENVIRONMENT ${lockstep_without_gpu})
  gtest_discover_tests(test_examples NO_PRETTY_VALUES TEST_FILTER "*OnGpus*"
    TEST_LIST test_examples_gpu DISCOVERY_TIMEOUT 120
    PROPERTIES LABELS gpu TIMEOUT ${test_timeout} PROCESSORS 2 ENVIRONMENT LOCKSTEP_SIM_DEVICES=2)
  lockstep_label_simulated(test_examples_gpu)
  add_dependencies(lockstep_sim_tests test_examples)
endif()
