# lockstep_header_checks: one object for each public header, which includes nothing but that header,
# twice. It sees the public include directories only, with every warning an error. Not part of
# `all`; the test Checks.HeadersCompileAlone builds it. The standard library's headers, three quarters
# of the time, are precompiled for all: that a header includes what it uses of them is checked by
# scripts/check_standard_headers.py. (That it includes no private one, by scripts/check_layering.py.)

set(header_check_dir "${PROJECT_BINARY_DIR}/header_checks")
file(GLOB_RECURSE public_headers CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}/include"
     "${PROJECT_SOURCE_DIR}/include/*.hpp")
set(header_check_sources)
foreach(header IN LISTS public_headers ITEMS lockstep/version.hpp)
  string(REPLACE ".hpp" ".cpp" source "${header_check_dir}/${header}")
  file(CONFIGURE OUTPUT "${source}" CONTENT "#include \"${header}\"\n#include \"${header}\"\n")
  list(APPEND header_check_sources "${source}")
endforeach()
set(standard_headers)
foreach(header IN LISTS public_headers)
  file(STRINGS "${PROJECT_SOURCE_DIR}/include/${header}" lines REGEX "^#include <[a-z_]+>")
  list(APPEND standard_headers ${lines})
endforeach()
list(TRANSFORM standard_headers REPLACE "^#include " "")
list(REMOVE_DUPLICATES standard_headers)
list(SORT standard_headers)

add_library(lockstep_header_checks OBJECT EXCLUDE_FROM_ALL ${header_check_sources})
set_target_properties(lockstep_header_checks PROPERTIES LOCKSTEP_COMPILE_ALONE ON)
target_include_directories(lockstep_header_checks PRIVATE "${PROJECT_SOURCE_DIR}/include"
                                                          "${LOCKSTEP_GENERATED_DIR}")
target_compile_features(lockstep_header_checks PRIVATE cxx_std_20)
target_compile_options(lockstep_header_checks PRIVATE -O0 -Wall -Wextra -Wpedantic -Wshadow -Werror)
target_precompile_headers(lockstep_header_checks PRIVATE ${standard_headers})
