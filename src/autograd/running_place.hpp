#pragma once

#include "lockstep/autograd/place.hpp"

/// @file
/// Where the backward of a node belongs.

namespace lockstep::autograd {

/// Notes that the calling thread runs the backward of what a place recorded, until the end of
/// scope: memory that it allocates is the place's.
class RunningPlace {
 public:
  explicit RunningPlace(PlaceId place) noexcept;
  RunningPlace(const RunningPlace&) = delete;
  RunningPlace& operator=(const RunningPlace&) = delete;
  ~RunningPlace();

 private:
  PlaceId previous_;
};

}  // namespace lockstep::autograd
