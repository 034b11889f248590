# Distributed tests: real ranks, started by the mpirun of the MPI that the library was built with.

# What every launch needs in containers, as root, and with more ranks than cores.
set(lockstep_mpi_environment
  OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
  OMPI_MCA_btl_vader_single_copy_mechanism=none OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive)
# A collective that waits for a rank that never comes ends its test sooner than ctest does.
math(EXPR lockstep_collective_timeout "30 * ${timeout_multiplier}")

# One of the runs of lockstep_add_mpi_test; behind its arguments the end of its name.
function(lockstep_add_mpi_run name ranks part parts label)
  set(run ${name}_np${ranks}${ARGN})
  set(environment "${lockstep_mpi_environment};LOCKSTEP_TIMEOUT=${lockstep_collective_timeout}")
  if(parts GREATER 1)
    string(APPEND run _part${part})
    math(EXPR index "${part} - 1")
    list(APPEND environment GTEST_TOTAL_SHARDS=${parts} GTEST_SHARD_INDEX=${index})
  endif()
  if(label STREQUAL "mpi")
    list(APPEND environment ${lockstep_without_gpu})
  endif()
  add_test(NAME ${run}
           COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} --bind-to none
                   $<TARGET_FILE:${name}>)
  set_tests_properties(${run} PROPERTIES
    LABELS ${label} TIMEOUT ${test_timeout} ENVIRONMENT "${environment}")
  if(label STREQUAL "gpu")
    set_tests_properties(${run} PROPERTIES SKIP_REGULAR_EXPRESSION "\\[  SKIPPED \\]")
    if(LOCKSTEP_WITH_SIMGPU)
      set_property(TEST ${run} PROPERTY LABELS gpu sim)
    endif()
  endif()
endfunction()

# lockstep_add_mpi_test(name SOURCES file... NP count... [LABEL label] [PARTS count] [CONTRACTS folder])
#
# Builds one executable with the main program of tests/support/mpi_main.cpp, and runs all of its
# cases once for each number of ranks, in several PARTS where they take long. CONTRACTS links the suites of
# tests/comm or tests/parallel, of which it instantiates some. Those labelled gpu are reported as skipped where there are too
# few GPUs. Does nothing in a build without MPI.
#
# Ranks wait for launchers and for each other more than they compute, and leave the processor meanwhile:
# a test counts as one processor, whatever its number of ranks, so that others run beside it.
function(lockstep_add_mpi_test name)
  cmake_parse_arguments(arg "" "LABEL;PARTS;CONTRACTS" "SOURCES;NP" ${ARGN})
  if(NOT LOCKSTEP_WITH_MPI)
    return()
  endif()
  if(NOT arg_LABEL)
    set(arg_LABEL mpi)
  endif()
  add_executable(${name} ${arg_SOURCES} "${PROJECT_SOURCE_DIR}/tests/support/mpi_main.cpp")
  target_link_libraries(${name} PRIVATE lockstep_test_support)
  if(arg_CONTRACTS)
    target_link_libraries(${name} PRIVATE lockstep_${arg_CONTRACTS}_contracts)
  endif()
  if(NOT arg_PARTS)
    set(arg_PARTS 1)
  endif()
  foreach(ranks IN LISTS arg_NP)
    foreach(part RANGE 1 ${arg_PARTS})
      lockstep_add_mpi_run(${name} ${ranks} ${part} ${arg_PARTS} ${arg_LABEL})
    endforeach()
  endforeach()
  if(LOCKSTEP_WITH_SIMGPU AND arg_LABEL STREQUAL "gpu")
    add_dependencies(lockstep_sim_tests ${name})
  endif()
endfunction()

lockstep_add_mpi_test(test_comm_mpi NP 1 2 3 4 CONTRACTS comm
  SOURCES comm/mpi/mpi_communicator_test.cpp comm/mpi/mpi_transport_test.cpp)
if(LOCKSTEP_WITH_MPI)
  target_link_libraries(test_comm_mpi PRIVATE MPI::MPI_CXX)
endif()
lockstep_add_mpi_test(test_comm_shm NP 2 3 4 CONTRACTS comm
  SOURCES comm/shm/shm_communicator_test.cpp)
lockstep_add_mpi_test(test_comm_hier NP 4 CONTRACTS comm
  SOURCES comm/hier/hier_mpi_test.cpp)
lockstep_add_mpi_test(test_comm_window NP 1 2 3 4 CONTRACTS comm
  SOURCES comm/window/window.cpp comm/window/window_executor.cpp comm/window/window_backend.cpp
          comm/window/window_test.cpp)
lockstep_add_mpi_test(test_comm_nccl NP 1 2 3 4 LABEL gpu CONTRACTS comm
  SOURCES comm/nccl/nccl_communicator_test.cpp)
lockstep_add_mpi_test(test_comm_staged NP 1 2 3 4 LABEL gpu CONTRACTS comm
  SOURCES comm/staged/staged_mpi_test.cpp)
lockstep_add_mpi_test(test_parallel_mpi NP 1 2 3 4 CONTRACTS parallel
  SOURCES parallel/mpi/mpi_parallel_test.cpp)
lockstep_add_mpi_test(test_parallel_nccl NP 1 2 3 4 LABEL gpu CONTRACTS parallel
  SOURCES parallel/nccl/nccl_parallel_test.cpp)
lockstep_add_mpi_test(test_ddp_nccl NP 1 2 3 LABEL gpu PARTS 3 CONTRACTS parallel
  SOURCES parallel/nccl/nccl_replica_test.cpp parallel/nccl/nccl_random_training_test.cpp)
# Of four ranks what compares sums and shards: the rest finds no more than with three.
if(LOCKSTEP_WITH_MPI)
  foreach(part IN ITEMS 1 2)
    lockstep_add_mpi_run(test_ddp_nccl 4 ${part} 2 gpu)
    set_property(TEST test_ddp_nccl_np4_part${part} APPEND PROPERTY ENVIRONMENT
      "GTEST_FILTER=*/ReplicaContract.*:*/MixedDtypesContract.*:*/Zero*Contract.*:*/Gather*Contract.*")
  endforeach()
endif()
lockstep_add_mpi_test(test_ddp_staged NP 2 LABEL gpu CONTRACTS parallel
  SOURCES parallel/staged/staged_replica_test.cpp)
lockstep_add_mpi_test(test_ddp_mpi NP 1 2 3 4 CONTRACTS parallel
  SOURCES parallel/mpi/mpi_replica_test.cpp)
# Under sanitizers what captures steps runs by itself, with a pool (tests/CMakeLists.txt).
if(LOCKSTEP_WITH_MPI AND LOCKSTEP_SANITIZE)
  foreach(ranks IN ITEMS 1 2 3 4)
    lockstep_add_mpi_run(test_ddp_mpi ${ranks} 1 1 mpi _captured)
    set_property(TEST test_ddp_mpi_np${ranks}_captured APPEND PROPERTY ENVIRONMENT
      "GTEST_FILTER=*StepGraph*:*Captur*" LOCKSTEP_POOL=caching)
    set_property(TEST test_ddp_mpi_np${ranks} APPEND PROPERTY ENVIRONMENT "GTEST_FILTER=-*StepGraph*:*Captur*")
  endforeach()
endif()

# Whole jobs, started by the tests themselves: one program that is a rank, one that starts ranks.
add_library(comm_job_bad_thread SHARED comm/jobs/bad_thread.cpp)
target_link_libraries(comm_job_bad_thread PRIVATE lockstep_flags ${CMAKE_DL_LIBS})
add_executable(comm_job_program comm/jobs/job_program.cpp comm/jobs/disagreements.cpp
               comm/jobs/endings.cpp comm/jobs/stops.cpp comm/jobs/training.cpp)
target_include_directories(comm_job_program PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/src")
# First, before the library that the real pthread_create is in; kept even where nothing calls it.
target_link_libraries(comm_job_program PRIVATE
  -Wl,--push-state,--no-as-needed comm_job_bad_thread -Wl,--pop-state
  lockstep::lockstep lockstep_flags)
file(GLOB job_tests CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/comm/jobs/*_test.cpp")
add_executable(test_comm_jobs ${job_tests})
target_link_libraries(test_comm_jobs PRIVATE lockstep_test_support GTest::gtest_main)
target_compile_definitions(test_comm_jobs PRIVATE
  LOCKSTEP_JOB_PROGRAM="$<TARGET_FILE:comm_job_program>" LOCKSTEP_MPIEXEC="${MPIEXEC_EXECUTABLE}"
  LOCKSTEP_HOSTS="${CMAKE_CURRENT_SOURCE_DIR}/support/hosts.sh")
add_dependencies(test_comm_jobs comm_job_program)
# Those on GPUs have "OnGpus" in their names.
set(job_filter "-*OnGpus*:*Slow*")
if(NOT LOCKSTEP_WITH_MPI)
  set(job_filter "-*OnGpus*:*Slow*:*Mpi*")
endif()
# These jobs wait (for launchers, handshakes and grace periods) far more than they compute: a test
# counts as one processor, so that others run meanwhile. Few processors would be idle while several
# wait, so there one of a kind runs at a time, from the start on.
set(one_waiting_job "")
set(one_waiting_job_on_gpus "")
if(processors LESS 8)
  set(one_waiting_job RESOURCE_LOCK waiting_job COST 1000)
  set(one_waiting_job_on_gpus RESOURCE_LOCK waiting_job_on_gpus COST 1000)
endif()
gtest_discover_tests(test_comm_jobs NO_PRETTY_VALUES TEST_FILTER "${job_filter}" DISCOVERY_TIMEOUT 120
  PROPERTIES LABELS mpi TIMEOUT ${test_timeout} ${one_waiting_job}
             ENVIRONMENT ${lockstep_without_gpu})
if(LOCKSTEP_WITH_MPI)
  gtest_discover_tests(test_comm_jobs NO_PRETTY_VALUES TEST_FILTER "*Slow*" TEST_LIST test_comm_jobs_slow
    DISCOVERY_TIMEOUT 120
    PROPERTIES LABELS slow TIMEOUT ${slow_test_timeout} ENVIRONMENT ${lockstep_without_gpu})
  gtest_discover_tests(test_comm_jobs NO_PRETTY_VALUES TEST_FILTER "*OnGpus*" TEST_LIST test_comm_jobs_gpu
    DISCOVERY_TIMEOUT 120
    PROPERTIES LABELS gpu TIMEOUT ${test_timeout} ${one_waiting_job_on_gpus}
               ENVIRONMENT LOCKSTEP_SIM_DEVICES=4)
  lockstep_label_simulated(test_comm_jobs_gpu)
  add_dependencies(lockstep_sim_tests test_comm_jobs)
endif()

# The same source without NCCL: a build of its own (minutes), that has to take the way through the host.
#   ctest --test-dir build-sim -R '^build_without_nccl$' --output-on-failure
if(LOCKSTEP_WITH_MPI AND LOCKSTEP_WITH_SIMGPU)
  add_test(NAME build_without_nccl
    COMMAND "${CMAKE_CURRENT_SOURCE_DIR}/support/without_nccl.sh" "${PROJECT_SOURCE_DIR}"
            "${PROJECT_BINARY_DIR}/without-nccl" -G ${CMAKE_GENERATOR}
            -DCMAKE_BUILD_TYPE=${CMAKE_BUILD_TYPE}
            "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=${CMAKE_CXX_FLAGS_RELWITHDEBINFO}"
            "-DCMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER}"
            -DLOCKSTEP_WARNINGS_AS_ERRORS=${LOCKSTEP_WARNINGS_AS_ERRORS})
  set_tests_properties(build_without_nccl PROPERTIES LABELS slow TIMEOUT ${slow_test_timeout}
    PROCESSORS 2)
endif()

# Jobs over an NCCL that waits where the real one may: the linker puts that in front of its functions.
if(LOCKSTEP_WITH_NCCL AND LOCKSTEP_WITH_MPI)
  add_executable(comm_nccl_job_program comm/nccl/nccl_job_program.cpp comm/nccl/first_messages.cpp
                 comm/nccl/stubborn_nccl.cpp)
  target_include_directories(comm_nccl_job_program PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
  target_link_libraries(comm_nccl_job_program PRIVATE lockstep_test_support ${lockstep_cuda_runtime})
  foreach(function IN ITEMS ncclCommAbort ncclCommDestroy ncclCommSplit ncclCommGetAsyncError
          ncclAllReduce ncclSend ncclRecv cudaSetDevice cudaHostAlloc cudaHostRegister
          cudaEventQuery)
    target_link_options(comm_nccl_job_program PRIVATE "LINKER:--wrap=${function}")
  endforeach()
  add_executable(test_comm_nccl_jobs comm/nccl/nccl_jobs_test.cpp)
  target_link_libraries(test_comm_nccl_jobs PRIVATE lockstep_test_support GTest::gtest_main)
  target_compile_definitions(test_comm_nccl_jobs PRIVATE
    LOCKSTEP_JOB_PROGRAM="$<TARGET_FILE:comm_nccl_job_program>" LOCKSTEP_MPIEXEC="${MPIEXEC_EXECUTABLE}")
  add_dependencies(test_comm_nccl_jobs comm_nccl_job_program)
  gtest_discover_tests(test_comm_nccl_jobs TEST_LIST comm_nccl_jobs_gpu DISCOVERY_TIMEOUT 120
    PROPERTIES LABELS gpu TIMEOUT ${test_timeout} ${one_waiting_job_on_gpus}
               ENVIRONMENT LOCKSTEP_SIM_DEVICES=3)
  lockstep_label_simulated(comm_nccl_jobs_gpu)
  add_dependencies(lockstep_sim_tests test_comm_nccl_jobs)
endif()
