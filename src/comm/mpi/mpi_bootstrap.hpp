#pragma once

#include <mpi.h>

#include "lockstep/comm/bootstrap.hpp"

namespace lockstep::comm {

/// A job whose ranks MPI has brought together.
class MpiBootstrap : public Bootstrap {
 public:
  using Bootstrap::Bootstrap;
  /// All ranks, for this library's use alone.
  virtual MPI_Comm communicator() const = 0;
};

}  // namespace lockstep::comm
