# Files are compiled in batches, each of one folder and one translation unit: what they include is read
# and instantiated once for all, in a quarter to a half of the time. Names in unnamed namespaces are
# therefore distinct among the files of a folder that go into one target, or overloads of types that do
# not convert. Compiled alone are files that have options of their own, those of .cu, and kernels, whose
# code shall not depend on its neighbours.
#
# LOCKSTEP_UNITY_BUILD=OFF compiles each file alone: a change of one takes less time then.

option(LOCKSTEP_UNITY_BUILD "Compile the files of a folder in batches" ON)
set(LOCKSTEP_UNITY_BATCH 8 CACHE STRING "Files of a batch, at most; 0: all of a folder")
mark_as_advanced(LOCKSTEP_UNITY_BATCH)
set(CMAKE_UNITY_BUILD OFF)  # a user's own would put files of several folders together

# The files of one folder, in batches of sizes alike.
function(lockstep_batch_folder folder)
  list(LENGTH ARGN count)
  set(batches 1)
  if(LOCKSTEP_UNITY_BATCH GREATER 0)
    math(EXPR batches "(${count} + ${LOCKSTEP_UNITY_BATCH} - 1) / ${LOCKSTEP_UNITY_BATCH}")
  endif()
  cmake_path(RELATIVE_PATH folder BASE_DIRECTORY "${PROJECT_SOURCE_DIR}" OUTPUT_VARIABLE name)
  string(MAKE_C_IDENTIFIER "${name}" name)
  set(index 0)
  foreach(source IN LISTS ARGN)
    math(EXPR batch "${index} * ${batches} / ${count}")
    set_source_files_properties("${source}" PROPERTIES UNITY_GROUP ${name}_${batch})
    math(EXPR index "${index} + 1")
  endforeach()
endfunction()

function(lockstep_batch_target target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "\\.cpp$")
  set(kernels "${PROJECT_SOURCE_DIR}/kernels")
  set(folders "")
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}")
    cmake_path(IS_PREFIX kernels "${source}" is_kernel)
    if(NOT is_kernel)
      cmake_path(GET source PARENT_PATH folder)
      list(APPEND folders "${folder}")
      list(APPEND "files of ${folder}" "${source}")
    endif()
  endforeach()
  list(REMOVE_DUPLICATES folders)
  foreach(folder IN LISTS folders)
    set(files "files of ${folder}")
    lockstep_batch_folder("${folder}" ${${files}})
  endforeach()
endfunction()

# lockstep_compile_in_batches(): all targets of this directory, but those that are one batch already (UNITY_BUILD)
# or say LOCKSTEP_COMPILE_ALONE.
function(lockstep_compile_in_batches)
  if(NOT LOCKSTEP_UNITY_BUILD)
    return()
  endif()
  get_property(targets DIRECTORY PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    get_target_property(is_one ${target} UNITY_BUILD)
    get_target_property(is_apart ${target} LOCKSTEP_COMPILE_ALONE)
    if(type MATCHES "^(STATIC_LIBRARY|SHARED_LIBRARY|OBJECT_LIBRARY|EXECUTABLE)$" AND NOT is_one AND NOT is_apart)
      lockstep_batch_target(${target})
    endif()
  endforeach()
endfunction()
