# A run that tests kill while it saves.
add_executable(checkpoint_job "${CMAKE_CURRENT_LIST_DIR}/checkpoint_job.cpp")
# One whose memory they measure.
add_executable(checkpoint_memory_job "${CMAKE_CURRENT_LIST_DIR}/memory_job.cpp")
foreach(job IN ITEMS checkpoint_job checkpoint_memory_job)
  target_link_libraries(${job} PRIVATE lockstep_test_support)
  add_dependencies(test_checkpoint ${job})
endforeach()
target_compile_definitions(test_checkpoint PRIVATE
  LOCKSTEP_CHECKPOINT_JOB="$<TARGET_FILE:checkpoint_job>"
  LOCKSTEP_CHECKPOINT_MEMORY_JOB="$<TARGET_FILE:checkpoint_memory_job>")
if(LOCKSTEP_WITH_MPI)
  target_compile_definitions(test_checkpoint PRIVATE LOCKSTEP_MPIEXEC="${MPIEXEC_EXECUTABLE}")
endif()

# Skipped where LOCKSTEP_PYTHON has no safetensors and numpy; .ci/run gives one that does.
add_test(NAME Checkpoint.PythonOpensEveryFileOfTensors
         COMMAND "${LOCKSTEP_PYTHON}" "${CMAKE_CURRENT_LIST_DIR}/open_checkpoint.py"
                 $<TARGET_FILE:checkpoint_job>)
set_tests_properties(Checkpoint.PythonOpensEveryFileOfTensors PROPERTIES LABELS cpu
                     TIMEOUT ${test_timeout} SKIP_RETURN_CODE 77 ENVIRONMENT "${lockstep_without_gpu}")
