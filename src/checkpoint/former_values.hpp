#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

/// @file
/// What a load changes before it knows that all is well.

namespace lockstep::checkpoint {

/// What tensors had before they were filled: put back when this dies, unless it was told to forget.
class FormerValues {
 public:
  FormerValues() = default;
  FormerValues(FormerValues&& other) noexcept : kept_(std::exchange(other.kept_, {})) {}
  FormerValues& operator=(FormerValues&&) = delete;
  ~FormerValues() {
    for (const Kept& each : kept_)
      std::memcpy(each.place.data(), each.values, each.place.size_bytes());
  }

  /// To be called before the place changes. No place may overlap another one.
  /// @param values a copy of what the place has, which outlives this.
  void add(std::span<std::byte> place, const std::byte* values) {
    kept_.push_back({place, values});
  }
  /// What is there now stays.
  void forget() noexcept { kept_.clear(); }

 private:
  struct Kept {
    std::span<std::byte> place;
    const std::byte* values;
  };
  std::vector<Kept> kept_;
};

}  // namespace lockstep::checkpoint
