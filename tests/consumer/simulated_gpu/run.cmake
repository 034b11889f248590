# cmake -D LOCKSTEP_BUILD=DIR -D WORK=DIR ... -P run.cmake
# Installs a build with the simulated GPU, then configures, builds and runs a project that uses it.

# run(STATUS TEXT... -- COMMAND...): fails unless the command ends with the status and prints all
# texts.
function(run)
  list(FIND ARGV -- separator)
  list(SUBLIST ARGV 1 ${separator} texts)
  list(REMOVE_ITEM texts --)
  math(EXPR begin "${separator} + 1")
  list(SUBLIST ARGV ${begin} -1 command)
  execute_process(COMMAND ${command} RESULT_VARIABLE status OUTPUT_VARIABLE output
                  ERROR_VARIABLE output)
  list(JOIN command " " line)
  if(NOT status EQUAL ARGV0)
    message(FATAL_ERROR "${line}\nended with ${status} instead of ${ARGV0}:\n${output}")
  endif()
  foreach(text IN LISTS texts)
    string(FIND "${output}" "${text}" at)
    if(at EQUAL -1)
      message(FATAL_ERROR "${line}\ndid not print '${text}':\n${output}")
    endif()
  endforeach()
  message(STATUS "${output}")
endfunction()

file(REMOVE_RECURSE "${WORK}")
run(0 -- "${CMAKE_COMMAND}" --install "${LOCKSTEP_BUILD}" --prefix "${WORK}/prefix")
run(0 -- "${CMAKE_COMMAND}" -S "${CMAKE_CURRENT_LIST_DIR}" -B "${WORK}/build" -G "${GENERATOR}"
    "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}"
    "-DCMAKE_BUILD_TYPE=Release" "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -g1"
    "-DCMAKE_PREFIX_PATH=${WORK}/prefix" -DLOCKSTEP_CUDA=SIMULATED)
run(0 -- "${CMAKE_COMMAND}" --build "${WORK}/build" --parallel "${JOBS}")
run(0 -- "${WORK}/build/doubling")
run(66 "simulated GPU: race" "twice_kernel" "missing edge" "main.cpp" -- "${WORK}/build/doubling" race)
run(0 "loss after 300 steps" -- "${WORK}/build/training" --device cuda)
