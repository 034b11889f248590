# cmake -D WAY=install|build_tree|subproject -D LOCKSTEP_BUILD=DIR -D WORK=DIR ... -P run.cmake
# Configures, builds and runs the consumer in WORK, from nothing.

function(run)
  execute_process(COMMAND ${ARGV} WORKING_DIRECTORY "${WORK}" RESULT_VARIABLE status OUTPUT_VARIABLE output
                  ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    list(JOIN ARGV " " command)
    message(FATAL_ERROR "${command}\nfailed with ${status}:\n${output}")
  endif()
  message(STATUS "${output}")
endfunction()

set(options -G "${GENERATOR}" "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_BUILD_TYPE=Release"
            "-DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}" "-DCMAKE_CXX_FLAGS=${FLAGS}"
            -DCMAKE_CXX_FLAGS_RELEASE=)
file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}")
if(WAY STREQUAL "install")
  run("${CMAKE_COMMAND}" --install "${LOCKSTEP_BUILD}" --prefix "${WORK}/prefix")
  list(APPEND options "-DCMAKE_PREFIX_PATH=${WORK}/prefix")
  set(tools "${WORK}/prefix/bin")
elseif(WAY STREQUAL "build_tree")
  list(APPEND options "-Dlockstep_DIR=${LOCKSTEP_BUILD}")
  set(tools "${LOCKSTEP_BUILD}/bin")
else()
  # The library is compiled once more here, so with every optional backend and instruction set off:
  # that this configuration builds and runs is checked by the same stroke.
  list(APPEND options -DCONSUMER_USES=subproject -DLOCKSTEP_BUILD_TOOLS=ON -DLOCKSTEP_CUDA=OFF -DLOCKSTEP_MPI=OFF
                      -DLOCKSTEP_ONEDNN=OFF -DLOCKSTEP_OPENMP=OFF -DLOCKSTEP_CPU_ISAS=baseline
                      -DLOCKSTEP_WARNINGS_AS_ERRORS=${WARNINGS_AS_ERRORS})
  set(tools "${WORK}/build/_deps/lockstep-build/examples")
  set(tool_targets lockstep_run lockstep_checkpoint)
endif()

run("${CMAKE_COMMAND}" -S "${CMAKE_CURRENT_LIST_DIR}" -B "${WORK}/build" ${options})
run("${CMAKE_COMMAND}" --build "${WORK}/build" --parallel "${JOBS}" --target consumer consumer_from_pytorch
    consumer_communicator ${tool_targets})
run("${WORK}/build/consumer")
run("${WORK}/build/consumer_from_pytorch")
run("${WORK}/build/consumer_communicator")
# What looks after runs comes with the library.
run("${tools}/lockstep_run" -n 2 -- "${WORK}/build/consumer")
run("${tools}/lockstep_checkpoint" --help)
