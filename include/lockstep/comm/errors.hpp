#pragma once

#include "lockstep/core/error.hpp"

/// @file
/// What can go wrong between ranks, beyond the errors of core.

namespace lockstep::comm {

/// The ranks called different collectives, or the same with different sizes, types or labels. The
/// message shows what each rank called.
class Mismatch : public Error {
 public:
  using Error::Error;
};

/// Another rank failed, was lost, or ended the group; the message holds its first error.
class PeerFailure : public Error {
 public:
  using Error::Error;
};

}  // namespace lockstep::comm
