#pragma once

#include "arguments/batch_norm.hpp"
#include "cuda/channel_tiles.hpp"
#include "functional/batch_norm.hpp"

/// @file
/// What the kernels of batch normalisation know of a channel.

namespace lockstep::cuda_kernels {

/// Statistics and parameters of the channels.
struct ChannelNorm {
  ChannelVector mean, deviation;  ///< deviation: 1 / sqrt(variance + eps), or the variance
  bool has_variance = false;
  double eps = 0;
  ChannelVector weight = {}, bias = {};

  template <class A>
  __device__ functional::NormStatistics<A> statistics(std::int64_t channel) const {
    const A value = deviation.load(channel, A(1));
    return {mean.load(channel, A(0)),
            has_variance ? functional::inverse_deviation(value, static_cast<A>(eps)) : value};
  }
};

/// Vectors [C] of T's accumulation type that live for one call.
template <class T>
class ChannelScratch {
 public:
  ChannelScratch(std::int64_t vectors, std::int64_t channels, StreamRef stream)
      : channels_(channels),
        scratch_(static_cast<std::size_t>(vectors * channels) * sizeof(AccumulateType<T>), stream) {
  }

  ArrayView operator[](std::int64_t i) const {
    using A = AccumulateType<T>;
    return {static_cast<A*>(scratch_.data()) + i * channels_, dtype_of<A>, {channels_}, {1}};
  }

 private:
  std::int64_t channels_;
  Scratch scratch_;
};

}  // namespace lockstep::cuda_kernels
