#pragma once

#include "lockstep/core/random.hpp"
#include "lockstep/tensor/tensor.hpp"

/// @file
/// Initial values of parameters. All functions fill the tensor in place, unrecorded, and return it;
/// random ones draw from the given generator, in f32 at least.

namespace lockstep::nn::init {

/// While it lives, the functions of this thread leave tensors as they are, and draw nothing: for a
/// model whose whole state is loaded next. Its parameters hold whatever lay in memory until then.
class NoInitGuard {
 public:
  /// Begins.
  [[nodiscard]] NoInitGuard() noexcept;
  NoInitGuard(const NoInitGuard&) = delete;
  NoInitGuard& operator=(const NoInitGuard&) = delete;
  ~NoInitGuard();

 private:
  bool previous_;
};

/// Uniform over [low, high).
Tensor uniform_(Tensor tensor, double low, double high, Generator& generator = default_generator());
/// Normal.
Tensor normal_(Tensor tensor, double mean = 0.0, double deviation = 1.0,
               Generator& generator = default_generator());
/// All elements equal.
Tensor constant_(Tensor tensor, double value);
/// All elements 0.
inline Tensor zeros_(Tensor tensor) { return constant_(std::move(tensor), 0.0); }
/// All elements 1.
inline Tensor ones_(Tensor tensor) { return constant_(std::move(tensor), 1.0); }

/// Parameters of `trunc_normal_`.
struct TruncatedNormal {
  double mean = 0.0, deviation = 1.0;
  double low = -2.0, high = 2.0;
};
/// Normal, limited to [low, high] by redrawing: the distribution is cut, not clamped.
/// @throws InvalidArgument for an interval of less than a thousandth of the distribution.
Tensor trunc_normal_(Tensor tensor, TruncatedNormal options = {},
                     Generator& generator = default_generator());

/// How many values feed one output, and how many outputs one value feeds.
struct Fans {
  std::int64_t in, out;
};
/// Fans of a weight [out, in, ...]; further dimensions are the receptive field.
/// @throws InvalidArgument for fewer than two dimensions.
Fans fans_of(const Tensor& weight);

/// Uniform with variance 2 gain^2 / (in + out) (Glorot and Bengio 2010).
Tensor xavier_uniform_(Tensor tensor, double gain = 1.0,
                       Generator& generator = default_generator());
/// Normal with variance 2 gain^2 / (in + out) (Glorot and Bengio 2010).
Tensor xavier_normal_(Tensor tensor, double gain = 1.0, Generator& generator = default_generator());

/// Which fan keeps its variance: that of forward or of backward.
enum class FanMode : unsigned char { in, out };
/// Parameters of `kaiming_uniform_` and `kaiming_normal_`.
struct Kaiming {
  FanMode mode = FanMode::in;
  /// Slope of the leaky ReLU that follows; 0 is ReLU.
  double slope = 0.0;
};
/// Uniform with variance 2 / ((1 + slope^2) fan) (He et al. 2015).
Tensor kaiming_uniform_(Tensor tensor, Kaiming options = {},
                        Generator& generator = default_generator());
/// Normal with variance 2 / ((1 + slope^2) fan) (He et al. 2015).
Tensor kaiming_normal_(Tensor tensor, Kaiming options = {},
                       Generator& generator = default_generator());

/// `gain` times a random matrix whose rows, or columns where it has fewer of these, are orthonormal
/// (Saxe et al. 2014): of a weight [out, in, ...], a row is what leads to one output. Made in f64
/// on the CPU. @throws InvalidArgument for fewer than two dimensions.
Tensor orthogonal_(Tensor tensor, double gain = 1.0, Generator& generator = default_generator());

/// A weight as Linear and Conv2d start: uniform within 1 / sqrt(fan in).
Tensor layer_weight(const Shape& shape, TensorOptions options);
/// The bias that goes with a weight: uniform within 1 / sqrt(fan in); undefined if not wanted.
Tensor layer_bias(const Tensor& weight, bool wanted);
/// The same of a size of its own, for weights that begin with the input's channels.
Tensor bias_of_size(const Tensor& weight, std::int64_t size);

}  // namespace lockstep::nn::init
