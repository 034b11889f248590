# The version header, `cmake --install`, and the package that find_package(lockstep CONFIG) reads
# from an install tree or from this build tree.

include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(LOCKSTEP_GENERATED_DIR "${PROJECT_BINARY_DIR}/generated")
configure_file("${PROJECT_SOURCE_DIR}/cmake/version.hpp.in"
               "${LOCKSTEP_GENERATED_DIR}/lockstep/version.hpp" @ONLY)
target_include_directories(lockstep PUBLIC "$<BUILD_INTERFACE:${LOCKSTEP_GENERATED_DIR}>")

if(NOT LOCKSTEP_INSTALL)
  return()
endif()

# A build with the simulated GPU lies beside the usual one; lockstepConfig.cmake chooses.
set(lockstep_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/lockstep")
set(lockstep_variant "")
set(lockstep_library_dir "${CMAKE_INSTALL_LIBDIR}")
if(LOCKSTEP_WITH_SIMGPU)
  set(lockstep_variant Simulated)
  string(APPEND lockstep_library_dir "/lockstep-simulated")
endif()
set(lockstep_targets_file "lockstepTargets${lockstep_variant}.cmake")
set(lockstep_build_file "lockstepBuild${lockstep_variant}.cmake")

install(TARGETS lockstep EXPORT lockstepTargets
        ARCHIVE DESTINATION "${lockstep_library_dir}"
        LIBRARY DESTINATION "${lockstep_library_dir}"
        INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
if(LOCKSTEP_WITH_SIMGPU)
  install(TARGETS lockstep_simgpu EXPORT lockstepTargets
          ARCHIVE DESTINATION "${lockstep_library_dir}"
          LIBRARY DESTINATION "${lockstep_library_dir}")
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/simgpu/include/"
          DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/lockstep-simgpu")
  # What predicts a real device's time from a profile.
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/simgpu/profile/"
          DESTINATION "${CMAKE_INSTALL_DATADIR}/lockstep/profile" USE_SOURCE_PERMISSIONS
          PATTERN "tests" EXCLUDE PATTERN "__pycache__" EXCLUDE)
  install(DIRECTORY "${PROJECT_SOURCE_DIR}/simgpu/compiler/"
          DESTINATION "${lockstep_package_dir}/simgpu_compiler" USE_SOURCE_PERMISSIONS
          PATTERN "tests" EXCLUDE PATTERN "__pycache__" EXCLUDE)
  # For projects that take the package from the build tree.
  file(COPY "${PROJECT_SOURCE_DIR}/simgpu/compiler/"
       DESTINATION "${PROJECT_BINARY_DIR}/simgpu_compiler"
       PATTERN "tests" EXCLUDE PATTERN "__pycache__" EXCLUDE)
endif()
# Programs, which find a shared library where it is installed. Those of two builds are the same: the
# last one that is installed stays.
function(lockstep_install_programs)
  file(RELATIVE_PATH to_library "/${CMAKE_INSTALL_BINDIR}" "/${lockstep_library_dir}")
  set_target_properties(${ARGN} PROPERTIES INSTALL_RPATH "$ORIGIN/${to_library}")
  install(TARGETS ${ARGN} RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endfunction()
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/lockstep"
                  "${LOCKSTEP_GENERATED_DIR}/lockstep"
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE"
        DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/lockstep")
install(EXPORT lockstepTargets NAMESPACE lockstep:: DESTINATION "${lockstep_package_dir}"
        FILE "${lockstep_targets_file}")
export(EXPORT lockstepTargets NAMESPACE lockstep::
       FILE "${PROJECT_BINARY_DIR}/${lockstep_targets_file}")

configure_file("${PROJECT_SOURCE_DIR}/cmake/lockstepBuild.cmake.in"
               "${PROJECT_BINARY_DIR}/${lockstep_build_file}" @ONLY)
configure_file("${PROJECT_SOURCE_DIR}/cmake/lockstepConfig.cmake"
               "${PROJECT_BINARY_DIR}/lockstepConfig.cmake" COPYONLY)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/lockstepConfig.cmake"
              "${PROJECT_BINARY_DIR}/${lockstep_build_file}"
              "${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake"
        DESTINATION "${lockstep_package_dir}")

# Modules that the package needs to find private dependencies of a static library, and the one that
# compiles kernels for the simulated GPU.
foreach(module IN ITEMS FindCudnn.cmake FindNccl.cmake FindOnednn.cmake
        LockstepSimulatedKernels.cmake)
  configure_file("${PROJECT_SOURCE_DIR}/cmake/${module}" "${PROJECT_BINARY_DIR}/${module}" COPYONLY)
  install(FILES "${PROJECT_SOURCE_DIR}/cmake/${module}" DESTINATION "${lockstep_package_dir}")
endforeach()
