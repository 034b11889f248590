# The planted faults: programs that must be reported by the simulated GPU, and those copies of
# lockstep's own files that carry a switch for a fault. scripts/planted_faults.sh runs them.

# lockstep_plant(target file from to ...): compiles a copy of a source file into
# the target, in place of the library's own object, in which each text, which must be there exactly
# once, is replaced. The text put in asks ::planted::is_planted(name). Reports show the original's
# name and lines.
function(lockstep_plant target file)
  file(READ "${PROJECT_SOURCE_DIR}/${file}" source)
  list(LENGTH ARGN words)
  math(EXPR last "${words} - 1")
  foreach(at RANGE 0 ${last} 2)
    math(EXPR next "${at} + 1")
    list(GET ARGN ${at} from)
    list(GET ARGN ${next} to)
    string(FIND "${source}" "${from}" first)
    string(FIND "${source}" "${from}" again REVERSE)
    if(first EQUAL -1 OR NOT first EQUAL again)
      message(FATAL_ERROR "${file} must hold this text exactly once, for a fault to be planted "
              "there; adapt simgpu/tests/planted/planted.cmake:\n${from}")
    endif()
    string(REPLACE "${from}" "${to}" source "${source}")
  endforeach()
  set(copy "${CMAKE_CURRENT_BINARY_DIR}/planted/${file}")
  file(CONFIGURE OUTPUT "${copy}" @ONLY
       CONTENT "#include \"planted/switch.hpp\"\n#line 1 \"${file}\"\n${source}")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${file}")
  target_sources(${target} PRIVATE "${copy}")
  # An object of its own in the library: what is planted takes its place, and that of no other file.
  set_source_files_properties("${PROJECT_SOURCE_DIR}/${file}" TARGET_DIRECTORY lockstep
                              PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

file(GLOB planted_sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/*.cpp")
file(GLOB planted_kernels CONFIGURE_DEPENDS "${CMAKE_CURRENT_LIST_DIR}/*.cu")
add_executable(planted_faults ${planted_sources})
lockstep_simulate_kernels(planted_faults NO_TRANSLATION ${planted_kernels})
target_link_libraries(planted_faults PRIVATE lockstep_test_support lockstep_simgpu_tests)

lockstep_plant(planted_faults src/comm/nccl/nccl_submission.cpp
  "order_after_callers(operations, stream_)"
  "if (!::planted::is_planted(\"communication-ignores-backward\")) order_after_callers(operations, stream_)")
lockstep_plant(planted_faults src/comm/arguments.cpp
  "is_in_place || !overlap(part, whole)"
  "is_in_place || !overlap(part, whole) || ::planted::is_planted(\"gather-out-of-place\")")
lockstep_plant(planted_faults src/parallel/tensor_work.cpp
  "work_.wait()"
  "if (!::planted::is_planted(\"optimizer-ignores-all-reduce\")) work_.wait()"
  "if (held_.empty())"
  "if (held_.empty() || ::planted::is_planted(\"bucket-freed-while-reduced\"))")
lockstep_plant(planted_faults src/parallel/parameter_shards.cpp
  "  return group_->all_gather({own.data_ptr()"
  "  Stream other(group_->device())\\;
  const StreamGuard aside(::planted::is_planted(\"gather-ignores-optimizer\") ? other.ref() : current_stream(group_->device()))\\;
  return group_->all_gather({own.data_ptr()")
lockstep_plant(planted_faults src/parallel/gather_gate.cpp
  "work_.wait()"
  "if (!::planted::is_planted(\"forward-ignores-gather\")) work_.wait()")
lockstep_plant(planted_faults src/parallel/gathered_array.cpp
  "work_.wait()\;\n    memory_.record_stream"
  "if (!::planted::is_planted(\"weight-used-before-gathered\")) work_.wait()\;\n    memory_.record_stream")
lockstep_plant(planted_faults src/parallel/gathered_parameters.cpp
  "state.array->wait()\;  // one that nobody"
  "if (!::planted::is_planted(\"shard-written-while-sent\")) state.array->wait()\;  // one that nobody")
lockstep_plant(planted_faults src/parallel/reducer.cpp
  "while (!bucket.exchange.is_done()) go_on(bucket)"
  "while (!bucket.exchange.is_done() && !::planted::is_planted(\"bucket-freed-while-reduced\")) go_on(bucket)")
lockstep_plant(planted_faults src/parallel/bucket_planner.cpp
  "plan.ends.assign(ends, told.end())"
  "plan.ends.assign(ends, told.end())\;
  if (::planted::is_planted(\"plans-differ\")) plan.ends = group_.rank() == 0 ? std::vector<std::size_t>{1, parameters} : std::vector<std::size_t>{parameters}\;
  if (::planted::is_planted(\"bucket-past-the-end\")) plan.ends = {1, parameters + 1}")
lockstep_plant(planted_faults src/parallel/reducer_planning.cpp
  "if (!planner_->is_complete())"
  "if (!planner_->is_complete() && !(::planted::is_planted(\"plan-before-all-measured\") && group_->rank() == 0))")
lockstep_plant(planted_faults src/tensor/storage.cpp
  "if (block_) allocator_->record_stream"
  "if (block_ && !::planted::is_planted(\"replaced-bucket-freed\")) allocator_->record_stream")
lockstep_plant(planted_faults src/tensor/background_reads.cpp
  "if (all.count.load(std::memory_order_acquire) == 0) return"
  "if (all.count.load(std::memory_order_acquire) == 0 || ::planted::is_planted(\"optimizer-ignores-save\") || ::planted::is_planted(\"other-stream-ignores-save\")) return")
lockstep_plant(planted_faults src/parallel/reducer_buckets.cpp
  "std::copy(agreed.begin(), agreed.end(), reinterpret_cast<char*>(order.data()))"
  "if (!::planted::is_planted(\"collectives-out-of-order\")) std::copy(agreed.begin(), agreed.end(), reinterpret_cast<char*>(order.data()))"
  "if (!registration_) return"
  "if (::planted::is_planted(\"registered-bucket-replaced\")) static_cast<void>(registration_.release())\;
  if (!registration_) return")
lockstep_plant(planted_faults src/autograd/engine.cpp
  "if (--node.waiting_ != 0) return"
  "if (--node.waiting_ != 0 && !::planted::is_planted(\"bucket-written-twice\")) return")
lockstep_plant(planted_faults src/autograd/leaf.cpp
  "hold(alone ?"
  "hold(alone || ::planted::is_planted(\"replayed-gradient-accumulated\") ?")
lockstep_plant(planted_faults src/autograd/captured_leaves.cpp
  "if (each.matters &&"
  "if (each.matters && !::planted::is_planted(\"stale-static-gradient\") &&")
lockstep_plant(planted_faults src/backend/cuda/lt_plan.cpp
  "matrix.columns), matrix.leading)"
  "matrix.columns), ::planted::is_planted(\"wrong-leading-dimension\") ? (matrix.leading + 7) / 8 * 8 : matrix.leading)"
  "return CUBLASLT_EPILOGUE_GELU_AUX_BIAS"
  "return ::planted::is_planted(\"wrong-epilogue\") ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU_AUX_BIAS")
lockstep_plant(planted_faults src/runtime/stream.cpp
  "if (handle_) device_runtime(device_.type).destroy_event(device_, handle_)"
  "if (handle_ && !::planted::is_planted(\"event-leak\")) device_runtime(device_.type).destroy_event(device_, handle_)")

# The table and a few seeds with each landing; the seeds of the release on demand.
add_test(NAME planted_faults COMMAND planted_faults --seeds 3)
set_tests_properties(planted_faults PROPERTIES LABELS sim TIMEOUT ${test_timeout}
                     ENVIRONMENT OMP_WAIT_POLICY=passive)
add_test(NAME planted_faults_without_keys COMMAND planted_faults --only host-reads-too-early)
set_tests_properties(planted_faults_without_keys PROPERTIES LABELS sim TIMEOUT ${test_timeout}
                     ENVIRONMENT LOCKSTEP_SIM_HOST_WATCH=pages)
add_test(NAME planted_faults_seeds COMMAND planted_faults --seeds 100)
set_tests_properties(planted_faults_seeds PROPERTIES LABELS slow TIMEOUT ${slow_test_timeout}
                     PROCESSORS 2 ENVIRONMENT OMP_WAIT_POLICY=passive)
add_dependencies(lockstep_sim_tests planted_faults)
