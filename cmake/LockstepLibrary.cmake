# The library target.
#
# Every .cpp below src/ is compiled (the CPU engine's: LockstepCpuKernels), with one rule for optional
# backends: the code of backend X lives in folders named X, its stand-in in src/no_X.cpp, and one of
# the two is chosen.

file(GLOB_RECURSE lockstep_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/*.cpp")
foreach(backend IN ITEMS cuda cudnn mpi nccl onednn)
  string(TOUPPER "LOCKSTEP_WITH_${backend}" with)
  if(${with})
    list(FILTER lockstep_sources EXCLUDE REGEX "/src/no_${backend}\\.cpp$")
  else()
    list(FILTER lockstep_sources EXCLUDE REGEX "/src/.*/${backend}/")
  endif()
endforeach()
list(FILTER lockstep_sources EXCLUDE REGEX "/src/.*/cudnn/")  # a target of LockstepCudaKernels
if(LOCKSTEP_WITH_SIMGPU)  # has its own stand-in for cuDNN
  list(FILTER lockstep_sources EXCLUDE REGEX "/src/no_cudnn\\.cpp$")
endif()

# Ways in which ranks exchange data, in the order of preference: folders of src/comm, each of which
# defines its BackendFactory (src/comm/backends.hpp).
set(lockstep_communicator_backends nccl shm hier mpi self tcp)
foreach(library IN ITEMS nccl mpi)
  string(TOUPPER "LOCKSTEP_WITH_${library}" with)
  if(NOT ${with})
    list(REMOVE_ITEM lockstep_communicator_backends ${library})
  endif()
endforeach()
list(TRANSFORM lockstep_communicator_backends
     REPLACE "(.+)" "LOCKSTEP_COMMUNICATOR_BACKEND(\\1)" OUTPUT_VARIABLE backend_list)
list(JOIN backend_list "\n" backend_list)
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/generated/comm/backend_list.def"
     CONTENT "${backend_list}\n")

add_library(lockstep ${lockstep_sources})
add_library(lockstep::lockstep ALIAS lockstep)
target_compile_features(lockstep PUBLIC cxx_std_20)
set_target_properties(lockstep PROPERTIES POSITION_INDEPENDENT_CODE ON)
target_include_directories(lockstep
  PUBLIC "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>" "$<INSTALL_INTERFACE:include>"
  PRIVATE "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/kernels")
target_link_libraries(lockstep PUBLIC Threads::Threads PRIVATE ZLIB::ZLIB)
if(OpenMP_CXX_FOUND)
  # One file alone has OpenMP's directives; the others compile as in a build without OpenMP.
  target_link_libraries(lockstep PRIVATE $<LINK_ONLY:OpenMP::OpenMP_CXX>)
  separate_arguments(openmp_flags NATIVE_COMMAND "${OpenMP_CXX_FLAGS}")
  set_source_files_properties("${PROJECT_SOURCE_DIR}/src/core/parallel.cpp" PROPERTIES
                              COMPILE_OPTIONS "${openmp_flags}")
endif()
if(LOCKSTEP_WITH_MPI)
  target_link_libraries(lockstep PRIVATE MPI::MPI_CXX)
endif()
if(LOCKSTEP_WITH_ONEDNN)
  target_link_libraries(lockstep PRIVATE Onednn::dnnl)
endif()

# Warnings and sanitizers for lockstep's own targets. In a batch of files, names of one hide those of
# another, which nobody reads together, and GCC takes the batch for a header.
set(shadow -Wshadow)
if(LOCKSTEP_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(shadow -Wshadow=local -Wno-subobject-linkage)
elseif(LOCKSTEP_UNITY_BUILD)
  set(shadow "")
endif()
add_library(lockstep_flags INTERFACE)
target_compile_options(lockstep_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wnon-virtual-dtor;${shadow}>")
# GCC 12 sees overlapping copies in the concatenation of strings (its bug 105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(lockstep_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()
# Clang does not know GCC's pragmas and targets, and would have && where loops over vectors have &.
target_compile_options(lockstep_flags INTERFACE
  "$<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wno-unknown-pragmas;-Wno-unknown-warning-option;-Wno-ignored-attributes;-Wno-bitwise-instead-of-logical;-Wno-bitwise-conditional-parentheses>")
if(LOCKSTEP_WARNINGS_AS_ERRORS)
  target_compile_options(lockstep_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(LOCKSTEP_SANITIZE)
  target_compile_options(lockstep_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${LOCKSTEP_SANITIZE} -fno-omit-frame-pointer>)
  target_link_options(lockstep PUBLIC -fsanitize=${LOCKSTEP_SANITIZE})
  if(LOCKSTEP_SANITIZE MATCHES address)
    target_sources(lockstep INTERFACE
      "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/cmake/keep_plugins_loaded.cpp>")
  endif()
endif()

# What the library alone compiles with is copied into it rather than linked: a linked target would
# have to be exported and found again by every user of the installed package.
function(lockstep_use_privately target)
  target_compile_options(lockstep PRIVATE
    "$<TARGET_PROPERTY:${target},INTERFACE_COMPILE_OPTIONS>")
  target_include_directories(lockstep SYSTEM PRIVATE
    "$<TARGET_PROPERTY:${target},INTERFACE_INCLUDE_DIRECTORIES>")
endfunction()
lockstep_use_privately(lockstep_flags)
lockstep_use_privately(nlohmann_json::nlohmann_json)

if(LOCKSTEP_WITH_SIMGPU)
  include(LockstepSimgpu)
endif()
include(LockstepCudaKernels)
