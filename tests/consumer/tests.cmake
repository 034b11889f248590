# Registers one test for each way to use lockstep from another project, which is compiled as this
# build is.

string(TOUPPER "${CMAKE_BUILD_TYPE}" build_type)
set(consumer_flags "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${build_type}}")
function(lockstep_add_consumer_test way)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LABELS")
  add_test(NAME Consumer.${way}
    COMMAND "${CMAKE_COMMAND}" -D WAY=${way} -D "LOCKSTEP_BUILD=${PROJECT_BINARY_DIR}"
            -D "WORK=${CMAKE_CURRENT_BINARY_DIR}/consumer/${way}" -D "GENERATOR=${CMAKE_GENERATOR}"
            -D "COMPILER=${CMAKE_CXX_COMPILER}" -D "LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER}"
            -D "FLAGS=${consumer_flags}" -D JOBS=${processors}
            -D WARNINGS_AS_ERRORS=${LOCKSTEP_WARNINGS_AS_ERRORS}
            -P "${CMAKE_CURRENT_SOURCE_DIR}/consumer/run.cmake")
  set_tests_properties(Consumer.${way} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${test_timeout})
endfunction()

if(LOCKSTEP_INSTALL)
  lockstep_add_consumer_test(install LABELS cpu toolkit)
  # On the CPU, as on most machines; the other runs on the simulated GPU where there is one.
  lockstep_add_consumer_test(build_tree LABELS cpu)
  set_tests_properties(Consumer.build_tree PROPERTIES ENVIRONMENT "${lockstep_without_gpu}")
endif()
if(LOCKSTEP_INSTALL AND LOCKSTEP_WITH_SIMGPU)
  if(LOCKSTEP_BUILD_TOOLS)
    add_dependencies(lockstep_sim_tests lockstep_run lockstep_checkpoint)
  endif()
  add_test(NAME Consumer.simulated_gpu
    COMMAND "${CMAKE_COMMAND}" -D "LOCKSTEP_BUILD=${PROJECT_BINARY_DIR}"
            -D "WORK=${CMAKE_CURRENT_BINARY_DIR}/consumer/simulated_gpu"
            -D "GENERATOR=${CMAKE_GENERATOR}" -D "COMPILER=${CMAKE_CXX_COMPILER}"
            -D "LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER}" -D JOBS=${processors}
            -P "${CMAKE_CURRENT_SOURCE_DIR}/consumer/simulated_gpu/run.cmake")
  set_tests_properties(Consumer.simulated_gpu PROPERTIES LABELS sim TIMEOUT ${test_timeout})
endif()
if(NOT LOCKSTEP_SANITIZE)
  lockstep_add_consumer_test(subproject LABELS cpu slow)
  set_tests_properties(Consumer.subproject PROPERTIES PROCESSORS ${processors}
                       TIMEOUT ${slow_test_timeout})
endif()
