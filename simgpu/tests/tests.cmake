# The simulated GPU's own tests.

file(GLOB simgpu_tests CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/*_test.cpp")
file(GLOB simgpu_kernel_tests CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/*_test.cu")

# For tests that look behind the interface of the simulated GPU.
add_library(lockstep_simgpu_tests INTERFACE)
target_include_directories(lockstep_simgpu_tests INTERFACE
  "${CMAKE_CURRENT_LIST_DIR}" "${PROJECT_SOURCE_DIR}/simgpu/src" "${PROJECT_SOURCE_DIR}/include")
target_compile_features(lockstep_simgpu_tests INTERFACE cxx_std_20)
target_link_libraries(lockstep_simgpu_tests INTERFACE lockstep_simgpu lockstep_flags)

add_executable(test_simgpu ${simgpu_tests})
lockstep_simulate_kernels(test_simgpu NO_TRANSLATION ${simgpu_kernel_tests})
target_link_libraries(test_simgpu PRIVATE lockstep_test_support lockstep_simgpu_tests GTest::gtest_main)
gtest_discover_tests(test_simgpu TEST_FILTER "-SimHostAccess*" DISCOVERY_TIMEOUT 60
  PROPERTIES LABELS sim TIMEOUT 120 ENVIRONMENT LOCKSTEP_SIM_DEVICES=2)
# In both ways that there are; with keys they are skipped where the machine has none.
foreach(way IN ITEMS keys pages)
  gtest_discover_tests(test_simgpu TEST_FILTER "SimHostAccess*" TEST_SUFFIX /${way}
    TEST_LIST test_simgpu_${way} DISCOVERY_TIMEOUT 60 PROPERTIES LABELS sim TIMEOUT 120)
  lockstep_set_discovered(test_simgpu_${way} ENVIRONMENT LOCKSTEP_SIM_DEVICES=2 LOCKSTEP_SIM_HOST_WATCH=${way})
endforeach()
add_dependencies(lockstep_sim_tests test_simgpu)

# Where all of a program is instrumented, so are the templates of the standard library that the
# simulated GPU itself calls to make its reports.
add_executable(test_simgpu_kernels_alone)
lockstep_simulate_kernels(test_simgpu_kernels_alone NO_TRANSLATION
                          "${CMAKE_CURRENT_LIST_DIR}/kernel_findings_test.cu"
                          "${CMAKE_CURRENT_LIST_DIR}/kernel_alignment_test.cu" "${CMAKE_CURRENT_LIST_DIR}/global_race_test.cu")
target_link_libraries(test_simgpu_kernels_alone PRIVATE lockstep_simgpu_tests GTest::gtest_main)
gtest_discover_tests(test_simgpu_kernels_alone TEST_SUFFIX /alone DISCOVERY_TIMEOUT 60
                     PROPERTIES LABELS sim TIMEOUT 120 ENVIRONMENT LOCKSTEP_SIM_DEVICES=2)
add_dependencies(lockstep_sim_tests test_simgpu_kernels_alone)

# The environment is read once a process: a program of its own.
add_executable(test_simgpu_host_threads
  "${CMAKE_CURRENT_LIST_DIR}/host_threads/host_threads_test.cpp")
target_link_libraries(test_simgpu_host_threads PRIVATE lockstep_test_support lockstep_simgpu_tests
                      GTest::gtest_main)
gtest_discover_tests(test_simgpu_host_threads PROPERTIES LABELS sim TIMEOUT 120
                     DISCOVERY_TIMEOUT 60)
add_dependencies(lockstep_sim_tests test_simgpu_host_threads)

# So is a profile, whose test reads what it wrote before. Bytes are those of all blocks, also where
# some of them run.
add_executable(test_simgpu_profile "${CMAKE_CURRENT_LIST_DIR}/profile/library_records_test.cpp")
lockstep_simulate_kernels(test_simgpu_profile NO_TRANSLATION
                          "${CMAKE_CURRENT_LIST_DIR}/profile/profile_test.cu")
target_link_libraries(test_simgpu_profile PRIVATE
  lockstep_test_support lockstep_simgpu_tests nlohmann_json::nlohmann_json GTest::gtest_main)
foreach(execute IN ITEMS all sample none)
  add_test(NAME Profile.OfWhatTheDeviceWasAskedFor/${execute} COMMAND test_simgpu_profile)
  set_tests_properties(Profile.OfWhatTheDeviceWasAskedFor/${execute} PROPERTIES
    LABELS sim TIMEOUT 120 ENVIRONMENT
    "LOCKSTEP_SIM_DEVICES=2;LOCKSTEP_SIM_EXECUTE=${execute};LOCKSTEP_SIM_PROFILE=profile-${execute}.jsonl")
endforeach()
add_dependencies(lockstep_sim_tests test_simgpu_profile)
include("${CMAKE_CURRENT_LIST_DIR}/nccl/tests.cmake")

# CUDA C++ that is no C++.
add_executable(test_simgpu_cuda_source)
lockstep_simulate_kernels(test_simgpu_cuda_source
                          "${CMAKE_CURRENT_LIST_DIR}/cuda_source/cuda_source_test.cu")
target_link_libraries(test_simgpu_cuda_source PRIVATE lockstep_simgpu_tests GTest::gtest_main)
gtest_discover_tests(test_simgpu_cuda_source DISCOVERY_TIMEOUT 60
                     PROPERTIES LABELS sim TIMEOUT 120 ENVIRONMENT LOCKSTEP_SIM_DEVICES=2)
add_dependencies(lockstep_sim_tests test_simgpu_cuda_source)

# Kernels compute the same where nothing looks at what they touch, and end where no memory is.
add_test(NAME Kernels.OfTestsRunUnwatched
         COMMAND test_simgpu --gtest_filter=Kernels.*:*Epilogues.*:KernelFaults.*)
set_tests_properties(Kernels.OfTestsRunUnwatched PROPERTIES
  LABELS sim TIMEOUT 120 ENVIRONMENT LOCKSTEP_SIM_WATCH=0)
# That many threads store the same value is a note, for those who ask for notes.
add_test(NAME GlobalRaces.OfTheSameValueAreNoted
         COMMAND test_simgpu --gtest_filter=GlobalRaces.AreNoneOfThreadsThatStoreTheSameValue)
set_tests_properties(GlobalRaces.OfTheSameValueAreNoted PROPERTIES
  LABELS sim TIMEOUT 120 ENVIRONMENT LOCKSTEP_SIM_NOTES=1
  PASS_REGULAR_EXPRESSION "simulated GPU: note\nkernel store_same_value.*: the same value stored by many threads")
include("${CMAKE_CURRENT_LIST_DIR}/planted/planted.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/failures/tests.cmake")
