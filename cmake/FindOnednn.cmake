# Finds oneDNN 2 or later: defines the target Onednn::dnnl. Debian's own package file is not used:
# it demands the development files of OpenCL, which lockstep does without.
find_path(ONEDNN_INCLUDE_DIR oneapi/dnnl/dnnl.hpp)
find_library(ONEDNN_LIBRARY dnnl)

set(ONEDNN_VERSION)
set(onednn_version_file "${ONEDNN_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h")
if(EXISTS "${onednn_version_file}")
  file(READ "${onednn_version_file}" onednn_header)
  foreach(part IN ITEMS MAJOR MINOR PATCH)
    string(REGEX MATCH "#define DNNL_VERSION_${part} ([0-9]+)" _ "${onednn_header}")
    list(APPEND ONEDNN_VERSION ${CMAKE_MATCH_1})
  endforeach()
  list(JOIN ONEDNN_VERSION "." ONEDNN_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Onednn REQUIRED_VARS ONEDNN_LIBRARY ONEDNN_INCLUDE_DIR
                                  VERSION_VAR ONEDNN_VERSION)
mark_as_advanced(ONEDNN_INCLUDE_DIR ONEDNN_LIBRARY)
if(Onednn_FOUND AND NOT TARGET Onednn::dnnl)
  add_library(Onednn::dnnl UNKNOWN IMPORTED)
  set_target_properties(Onednn::dnnl PROPERTIES
    IMPORTED_LOCATION "${ONEDNN_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${ONEDNN_INCLUDE_DIR}")
endif()
