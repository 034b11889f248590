# Finds what lockstep can use. Sets LOCKSTEP_WITH_{CUDA,CUDNN,MPI,NCCL,ONEDNN} to what was found.

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(nlohmann_json 3.9 REQUIRED)
find_package(ZLIB REQUIRED)
if(LOCKSTEP_OPENMP)
  find_package(OpenMP COMPONENTS CXX)
endif()

set(LOCKSTEP_WITH_MPI OFF)
if(LOCKSTEP_MPI)
  find_package(MPI COMPONENTS CXX)
  set(LOCKSTEP_WITH_MPI ${MPI_CXX_FOUND})
endif()

set(LOCKSTEP_WITH_ONEDNN OFF)
if(LOCKSTEP_ONEDNN)
  find_package(Onednn 2.6)
  set(LOCKSTEP_WITH_ONEDNN ${Onednn_FOUND})
endif()

include(LockstepCuda)
