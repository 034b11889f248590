# Python's safetensors reads what lockstep writes, and the other way round.

find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND)
  add_executable(round_trip_tool "${CMAKE_CURRENT_LIST_DIR}/round_trip_tool.cpp")
  target_link_libraries(round_trip_tool PRIVATE lockstep::lockstep lockstep_flags)
  add_test(NAME Safetensors.PythonReadsWhatLockstepWrites
           COMMAND Python3::Interpreter "${CMAKE_CURRENT_LIST_DIR}/round_trip.py"
                   $<TARGET_FILE:round_trip_tool>)
  set_tests_properties(Safetensors.PythonReadsWhatLockstepWrites PROPERTIES
    LABELS cpu TIMEOUT 120 SKIP_RETURN_CODE 77)
endif()
