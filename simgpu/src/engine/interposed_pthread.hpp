#pragma once

#include <pthread.h>

/// @file
/// The functions of the C library by which threads wait for each other. The simulated GPU defines
/// functions of the same names, which the program calls instead and which call these.

namespace simgpu {

/// The C library's own.
struct RealPthread {
  int (*mutex_lock)(pthread_mutex_t*);
  int (*mutex_unlock)(pthread_mutex_t*);
};

/// For the simulated GPU's own use.
const RealPthread& real_pthread();

}  // namespace simgpu
