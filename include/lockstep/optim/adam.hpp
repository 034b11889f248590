#pragma once

#include "lockstep/optim/optimizer.hpp"

/// @file
/// Adam and AdamW.

namespace lockstep::optim {

/// Options of Adam, as PyTorch's.
struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;  ///< decay of the first and second moments
  double eps = 1e-8;
  double weight_decay = 0.0;  ///< added to the gradient, times the parameter
  bool amsgrad = false;       ///< divide by the largest second moment so far
  bool maximize = false;
  bool master_weights = true;  ///< keep an f32 copy of bf16 and f16 parameters
  /// Round bf16 parameters up or down at random, so that small steps count in the mean: for those
  /// without master weights.
  bool stochastic_rounding = false;
  StateFormat state_format = StateFormat::full;  ///< in how many bits it remembers

  /// @throws InvalidArgument for negative options or betas outside [0, 1).
  void check() const;
  /// Calls `visitor(name, member)` for all members.
  template <class Options, class Visitor>
  static void visit(Options& options, Visitor visitor) {
    visitor("lr", options.lr);
    visitor("beta1", options.beta1);
    visitor("beta2", options.beta2);
    visitor("eps", options.eps);
    visitor("weight_decay", options.weight_decay);
    visitor("amsgrad", options.amsgrad);
    visitor("maximize", options.maximize);
    visitor("master_weights", options.master_weights);
  }
};

/// Options of AdamW, as PyTorch's.
struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;  ///< decay of the first and second moments
  double eps = 1e-8;
  double weight_decay = 0.01;  ///< times lr: the share of the parameter that each step removes
  bool amsgrad = false;        ///< divide by the largest second moment so far
  bool maximize = false;
  bool master_weights = true;  ///< keep an f32 copy of bf16 and f16 parameters
  /// Round bf16 parameters up or down at random, so that small steps count in the mean: for those
  /// without master weights.
  bool stochastic_rounding = false;
  StateFormat state_format = StateFormat::full;  ///< in how many bits it remembers

  /// @throws InvalidArgument for negative options or betas outside [0, 1).
  void check() const;
  /// Calls `visitor(name, member)` for all members.
  template <class Options, class Visitor>
  static void visit(Options& options, Visitor visitor) {
    AdamOptions::visit(options, visitor);
  }
};

/// What Adam and AdamW share.
template <class Options>
class AdamFamily : public OptimizerWith<Options> {
 public:
  using Groups = typename OptimizerWith<Options>::Groups;

 protected:
  explicit AdamFamily(const Groups& groups) : OptimizerWith<Options>(groups) {}

 private:
  StateNames state_names(std::size_t group, const Tensor& parameter) const override;
  void update(std::size_t group, std::span<ParameterState* const> parameters,
              const StepScalars& scalars) override;
};

/// Adam (Kingma and Ba 2015), with AMSGrad (Reddi, Kale and Kumar 2018) where asked for.
class Adam final : public AdamFamily<AdamOptions> {
 public:
  /// One group. @throws InvalidArgument for options out of range, no parameters, and as
  /// `Optimizer::add_group`.
  explicit Adam(ParameterList parameters, const AdamOptions& options = {})
      : Adam(Groups{{std::move(parameters), options}}) {}
  /// Several groups. @throws InvalidArgument as above.
  explicit Adam(const Groups& groups) : AdamFamily(groups) {}
};

/// Adam with decoupled weight decay (Loshchilov and Hutter 2019).
class AdamW final : public AdamFamily<AdamWOptions> {
 public:
  /// One group. @throws InvalidArgument for options out of range, no parameters, and as
  /// `Optimizer::add_group`.
  explicit AdamW(ParameterList parameters, const AdamWOptions& options = {})
      : AdamW(Groups{{std::move(parameters), options}}) {}
  /// Several groups. @throws InvalidArgument as above.
  explicit AdamW(const Groups& groups) : AdamFamily(groups) {}
};

}  // namespace lockstep::optim
