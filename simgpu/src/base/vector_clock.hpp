#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

/// @file
/// Logical time (Fidge 1988, Mattern 1989): how much of each stream's work is known to be done.

namespace simgpu {

/// A component of the clocks: the host, or a stream.
using Component = std::uint32_t;
inline constexpr Component host_component = 0;

/// The count-th step of a component.
struct Epoch {
  Component component = host_component;
  std::uint32_t count = 0;
};

/// For each component, the number of its steps that came before. Components that were never met
/// count as zero.
class VectorClock {
 public:
  std::uint32_t operator[](Component component) const {
    return component < counts_.size() ? counts_[component] : 0;
  }

  /// One more step of a component. @return that step.
  Epoch advance(Component component) {
    reach(component);
    return {component, ++counts_[component]};
  }

  /// Takes over what the other one knows.
  void join(const VectorClock& other) {
    if (other.counts_.size() > counts_.size()) counts_.resize(other.counts_.size());
    for (std::size_t i = 0; i < other.counts_.size(); ++i)
      if (other.counts_[i] > counts_[i]) counts_[i] = other.counts_[i];
  }

  void raise(Epoch epoch) {
    reach(epoch.component);
    if (counts_[epoch.component] < epoch.count) counts_[epoch.component] = epoch.count;
  }

  /// True if the step came before everything that follows this clock.
  bool knows(Epoch epoch) const { return epoch.count <= (*this)[epoch.component]; }

 private:
  void reach(Component component) {
    if (component >= counts_.size()) counts_.resize(component + 1);
  }

  std::vector<std::uint32_t> counts_;
};

}  // namespace simgpu
