#pragma once

#include <cstdint>
#include <functional>
#include <string>

/// @file
/// Where in a model ops are recorded, so that an error in their backward can say so.

namespace lockstep::autograd {

/// Number of a Place; 0: none. No two places of a process have the same.
using PlaceId = std::uint32_t;

/// A part of a model that records ops and has a name for messages: a module.
class Place {
 public:
  /// @param path asked when an error needs it, from any thread; empty for a part without a name.
  explicit Place(std::function<std::string()> path);
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  ~Place();
  /// Its number.
  PlaceId id() const noexcept { return id_; }

 private:
  friend std::string path_of(PlaceId place);
  PlaceId id_;
  std::function<std::string()> path_;
};

/// The path of a place; empty if it is gone.
std::string path_of(PlaceId place);

/// The number of the part that the calling thread runs; 0 outside any.
PlaceId current_place_id() noexcept;
/// The path of the part that the calling thread runs; empty outside any.
std::string current_path();

/// Notes that the calling thread runs a part of a model, until the end of scope. Ops that are
/// recorded meanwhile keep the number of the innermost, and memory that is allocated is its.
class PlaceGuard {
 public:
  /// Enters the place.
  explicit PlaceGuard(const Place& place) noexcept : PlaceGuard(place.id()) {}
  /// Enters the place of that number: where what runs now was recorded.
  explicit PlaceGuard(PlaceId place) noexcept;
  PlaceGuard(const PlaceGuard&) = delete;
  PlaceGuard& operator=(const PlaceGuard&) = delete;
  ~PlaceGuard();

 private:
  PlaceId previous_;
};

}  // namespace lockstep::autograd
