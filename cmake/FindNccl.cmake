# Finds NCCL 2: defines the target Nccl::nccl.
find_package(CUDAToolkit QUIET)
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})

set(NCCL_VERSION)
if(EXISTS "${NCCL_INCLUDE_DIR}/nccl.h")
  file(READ "${NCCL_INCLUDE_DIR}/nccl.h" nccl_header)
  foreach(part IN ITEMS MAJOR MINOR PATCH)
    string(REGEX MATCH "#define NCCL_${part} ([0-9]+)" _ "${nccl_header}")
    list(APPEND NCCL_VERSION ${CMAKE_MATCH_1})
  endforeach()
  list(JOIN NCCL_VERSION "." NCCL_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Nccl REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR
                                  VERSION_VAR NCCL_VERSION)
mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)
if(Nccl_FOUND AND NOT TARGET Nccl::nccl)
  add_library(Nccl::nccl UNKNOWN IMPORTED)
  set_target_properties(Nccl::nccl PROPERTIES
    IMPORTED_LOCATION "${NCCL_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${NCCL_INCLUDE_DIR}")
endif()
