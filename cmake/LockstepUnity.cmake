# Files are compiled in batches, each of one folder and one translation unit: what they include is read
# and instantiated once for all, which takes a third of the time. Names in unnamed namespaces are
# therefore distinct among the files of a folder that go into one target, or overloads of types that do
# not convert. Compiled alone are files that
# have options of their own, those of .cu, and kernels, whose code shall not depend on its neighbours.
#
# LOCKSTEP_UNITY_BUILD=OFF compiles each file alone: a change of one takes less time then.

option(LOCKSTEP_UNITY_BUILD "Compile the files of a folder in batches" ON)
set(LOCKSTEP_UNITY_BATCH 8 CACHE STRING "Files of a batch, at most; 0: all of a folder")
mark_as_advanced(LOCKSTEP_UNITY_BATCH)
set(CMAKE_UNITY_BUILD OFF)  # a user's own would put files of several folders together

# lockstep_compile_in_batches(): all targets of this directory, but those that have their UNITY_BUILD on already
# or LOCKSTEP_COMPILE_ALONE.
function(lockstep_compile_in_batches)
  if(NOT LOCKSTEP_UNITY_BUILD)
    return()
  endif()
  get_property(targets DIRECTORY PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    get_target_property(is_one ${target} UNITY_BUILD)
    get_target_property(is_apart ${target} LOCKSTEP_COMPILE_ALONE)
    if(is_one OR is_apart OR NOT type MATCHES "^(STATIC_LIBRARY|SHARED_LIBRARY|OBJECT_LIBRARY|EXECUTABLE)$")
      continue()
    endif()
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
    get_target_property(sources ${target} SOURCES)
    list(FILTER sources INCLUDE REGEX "\\.cpp$")
    set(kernels "${PROJECT_SOURCE_DIR}/kernels")
    set(folders "")
    foreach(source IN LISTS sources)
      cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}")
      cmake_path(IS_PREFIX kernels "${source}" is_kernel)
      if(is_kernel)
        continue()
      endif()
      cmake_path(GET source PARENT_PATH folder)
      list(APPEND folders "${folder}")
      list(APPEND "files of ${folder}" "${source}")
    endforeach()
    list(REMOVE_DUPLICATES folders)
    foreach(folder IN LISTS folders)
      list(LENGTH "files of ${folder}" count)
      set(batches 1)
      if(LOCKSTEP_UNITY_BATCH GREATER 0)
        math(EXPR batches "(${count} + ${LOCKSTEP_UNITY_BATCH} - 1) / ${LOCKSTEP_UNITY_BATCH}")
      endif()
      cmake_path(RELATIVE_PATH folder BASE_DIRECTORY "${PROJECT_SOURCE_DIR}" OUTPUT_VARIABLE name)
      string(MAKE_C_IDENTIFIER "${name}" name)
      set(index 0)
      foreach(source IN LISTS "files of ${folder}")
        math(EXPR batch "${index} * ${batches} / ${count}")
        set_source_files_properties("${source}" PROPERTIES UNITY_GROUP ${name}_${batch})
        math(EXPR index "${index} + 1")
      endforeach()
      unset("files of ${folder}")
    endforeach()
  endforeach()
endfunction()
