# Finds cuDNN 9: defines the target Cudnn::cudnn.
find_package(CUDAToolkit QUIET)
find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(CUDNN_LIBRARY cudnn HINTS ${CUDAToolkit_LIBRARY_DIR})

set(CUDNN_VERSION)
if(EXISTS "${CUDNN_INCLUDE_DIR}/cudnn_version.h")
  file(READ "${CUDNN_INCLUDE_DIR}/cudnn_version.h" cudnn_header)
  foreach(part IN ITEMS MAJOR MINOR PATCHLEVEL)
    string(REGEX MATCH "#define CUDNN_${part} ([0-9]+)" _ "${cudnn_header}")
    list(APPEND CUDNN_VERSION ${CMAKE_MATCH_1})
  endforeach()
  list(JOIN CUDNN_VERSION "." CUDNN_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Cudnn REQUIRED_VARS CUDNN_LIBRARY CUDNN_INCLUDE_DIR
                                  VERSION_VAR CUDNN_VERSION)
mark_as_advanced(CUDNN_INCLUDE_DIR CUDNN_LIBRARY)
if(Cudnn_FOUND AND NOT TARGET Cudnn::cudnn)
  add_library(Cudnn::cudnn UNKNOWN IMPORTED)
  set_target_properties(Cudnn::cudnn PROPERTIES
    IMPORTED_LOCATION "${CUDNN_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${CUDNN_INCLUDE_DIR}")
endif()
