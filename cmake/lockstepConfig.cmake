# The package of lockstep. Two builds may lie in one place: the usual one, and one with the simulated
# GPU (LOCKSTEP_CUDA=SIMULATED). A project takes the second by the variable that lockstep itself is
# configured with, -DLOCKSTEP_CUDA=SIMULATED, or where there is no other.

set(lockstep_usual "${CMAKE_CURRENT_LIST_DIR}/lockstepBuild.cmake")
set(lockstep_simulated "${CMAKE_CURRENT_LIST_DIR}/lockstepBuildSimulated.cmake")
if(LOCKSTEP_CUDA STREQUAL "SIMULATED" AND NOT EXISTS "${lockstep_simulated}")
  set(lockstep_FOUND FALSE)
  set(lockstep_NOT_FOUND_MESSAGE "LOCKSTEP_CUDA=SIMULATED, but no lockstep with the simulated GPU \
is installed here. Configure lockstep with --preset sim and install that build to the same prefix.")
elseif(LOCKSTEP_CUDA STREQUAL "SIMULATED" OR NOT EXISTS "${lockstep_usual}")
  include("${lockstep_simulated}")
else()
  include("${lockstep_usual}")
endif()
foreach(lockstep_component IN LISTS lockstep_FIND_COMPONENTS)
  if(lockstep_FIND_REQUIRED_${lockstep_component})
    set(lockstep_FOUND FALSE)
    set(lockstep_NOT_FOUND_MESSAGE "lockstep has no component ${lockstep_component}.")
  endif()
endforeach()
