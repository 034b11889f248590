#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "lockstep/parallel/bucket_reduction.hpp"
#include "lockstep/tensor/named_tensors.hpp"

/// @file
/// Gradients that travel as products of two narrow matrices.

namespace lockstep::parallel {

/// Options of PowerSgd; defaults are PyTorch's.
struct PowerSgdOptions {
  /// Columns of the two factors. More are closer, and more bytes.
  std::int64_t matrix_approximation_rank = 1;
  /// Backwards that average the gradients as they are before the first that compresses: their
  /// directions change most, and the buckets are laid out again after the first of them.
  std::int64_t start_iteration = 1000;
  /// A gradient is compressed if its factors have less than this fraction's inverse of its
  /// elements.
  double min_compression_rate = 2.0;
  /// What a step leaves out is added to this rank's gradient of the next one.
  bool use_error_feedback = true;
  /// A step begins with the factor of the last one; otherwise with random numbers, which are drawn
  /// once and the same on all ranks.
  bool warm_start = true;
  /// For these numbers.
  std::uint64_t random_seed = 0;
};

/// PowerSGD (Vogels, Karimireddy and Jaggi 2019): of each gradient with two dimensions or more, as
/// a matrix M [n, m] of all but its first dimension, travel P = M Q [n, r], made orthonormal, and
/// Q = M' P [m, r], averaged over the ranks; P Q' stands for the average of M. One round of power
/// iteration a step, two collectives a bucket. Other gradients travel as they are, with P.
///
/// Keeps, for each gradient that it compresses, Q and the error of this rank (f32, of f64 gradients
/// f64): as much memory as these gradients in f32. A step with inf or NaN in a matrix leaves both
/// as they are, so that it may be skipped, and so do gradients of parameters that no rank uses.
///
/// Replicas stay equal as long as all ranks compute the same bits from the same P and Q: on
/// devices of one kind.
///
/// Belongs to one DistributedDataParallel:
///
///     ddp.register_comm_hook(std::make_shared<parallel::PowerSgd>(
///         parallel::PowerSgdOptions{.matrix_approximation_rank = 4}));
class PowerSgd final : public BucketReduction, public std::enable_shared_from_this<PowerSgd> {
 public:
  /// @throws InvalidArgument for a rank below 1, a negative number of steps, or a rate that is not
  /// positive.
  explicit PowerSgd(const PowerSgdOptions& options = {});

  std::string name() const override;
  bool keeps_state() const override { return true; }
  BucketExchange exchange(GradBucket& bucket) override;

  /// Backwards that it has seen ("iterations"), and "NAME.q" and "NAME.error" for each gradient
  /// that it compresses: what a checkpoint must keep for exact resumption, each rank its own. Waits
  /// for the device.
  NamedTensors state_dict() const;
  /// Takes over what `state_dict` gave. Changes nothing if it throws.
  /// @throws InvalidArgument for keys that it does not know, or that are missing.
  void load_state_dict(const NamedTensors& state);

 private:
  struct State {
    Tensor q;      // [m, r]
    Tensor error;  // [n, m]; undefined without feedback
  };
  class Matrices;

  std::int64_t rank_of(const Tensor& gradient) const;
  bool is_compressed(const Tensor& gradient) const;
  State& state_of(const std::string& name, const Tensor& gradient);
  Tensor random_factor(const std::string& name, const Tensor& gradient) const;

  bool count_backward(Device device);

  PowerSgdOptions options_;
  std::int64_t iterations_ = 0;
  bool compresses_ = false;      // in this backward
  std::uint64_t recording_ = 0;  // the last captured step that it was part of
  std::int64_t in_step_ = 0;     // backwards of that step
  std::int64_t loads_ = 0;
  std::map<std::string, State> states_;  // by the parameters' names
};

}  // namespace lockstep::parallel
