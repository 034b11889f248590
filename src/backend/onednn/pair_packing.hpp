#pragma once

#include <cstdint>
#include <optional>

#include <dnnl.hpp>

/// @file
/// bf16 weights as oneDNN's forward convolutions read them. Its own reorders take three times as
/// long: up to half of the time of a convolution over small images.

namespace lockstep::backend::dnn {

/// Brings bf16 weights [out, in, KH, KW], contiguous, into the order of a primitive that wants
/// blocks of outputs, and of each the values of two neighbouring inputs beside each other.
class PairPacking {
 public:
  /// The packing between two orders; nothing where it is another one.
  static std::optional<PairPacking> between(const dnnl::memory::desc& user,
                                            const dnnl::memory::desc& chosen);
  /// Packs, in parallel.
  void operator()(const void* from, void* to) const;

 private:
  std::int64_t out_ = 0, in_ = 0, taps_ = 0;
  std::int64_t block_ = 0;  // outputs beside each other
};

}  // namespace lockstep::backend::dnn
