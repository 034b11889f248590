# Python's safetensors reads what lockstep writes, and the other way round; only where Python has it.

execute_process(COMMAND "${LOCKSTEP_PYTHON}" -c "import numpy, safetensors"
                RESULT_VARIABLE no_safetensors OUTPUT_QUIET ERROR_QUIET)
if(no_safetensors)
  message(STATUS "lockstep: ${LOCKSTEP_PYTHON} has no safetensors and numpy: no round trip is tested")
  return()
endif()

add_executable(round_trip_tool "${CMAKE_CURRENT_LIST_DIR}/round_trip_tool.cpp")
target_link_libraries(round_trip_tool PRIVATE lockstep::lockstep lockstep_flags)
add_test(NAME Safetensors.PythonReadsWhatLockstepWrites
         COMMAND "${LOCKSTEP_PYTHON}" "${CMAKE_CURRENT_LIST_DIR}/round_trip.py"
                 $<TARGET_FILE:round_trip_tool>)
set_tests_properties(Safetensors.PythonReadsWhatLockstepWrites PROPERTIES LABELS cpu
                     TIMEOUT ${test_timeout} ENVIRONMENT "${lockstep_without_gpu}")
