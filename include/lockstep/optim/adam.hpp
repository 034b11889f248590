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
};

/// Options of AdamW, as PyTorch's.
struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999;  ///< decay of the first and second moments
  double eps = 1e-8;
  double weight_decay = 0.01;  ///< times lr: the share of the parameter that each step removes
  bool amsgrad = false;        ///< divide by the largest second moment so far
  bool maximize = false;
};

/// What Adam and AdamW share.
template <class Options>
class AdamFamily : public OptimizerWith<Options> {
 public:
  using Groups = typename OptimizerWith<Options>::Groups;

 protected:
  explicit AdamFamily(const Groups& groups);

 private:
  void update(std::size_t group, std::span<ParameterState* const> parameters,
              std::int64_t step) override;
};

/// Adam (Kingma and Ba 2015), with AMSGrad (Reddi, Kale and Kumar 2018) where asked for.
class Adam final : public AdamFamily<AdamOptions> {
 public:
  /// One group. @throws InvalidArgument for negative options, betas outside [0, 1), and as
  /// `Optimizer::add_group`.
  explicit Adam(std::vector<Tensor> parameters, const AdamOptions& options = {})
      : Adam(Groups{{std::move(parameters), options}}) {}
  /// Several groups. @throws InvalidArgument as above.
  explicit Adam(const Groups& groups) : AdamFamily(groups) {}
};

/// Adam with decoupled weight decay (Loshchilov and Hutter 2019).
class AdamW final : public AdamFamily<AdamWOptions> {
 public:
  /// One group. @throws InvalidArgument for negative options, betas outside [0, 1), and as
  /// `Optimizer::add_group`.
  explicit AdamW(std::vector<Tensor> parameters, const AdamWOptions& options = {})
      : AdamW(Groups{{std::move(parameters), options}}) {}
  /// Several groups. @throws InvalidArgument as above.
  explicit AdamW(const Groups& groups) : AdamFamily(groups) {}
};

}  // namespace lockstep::optim
