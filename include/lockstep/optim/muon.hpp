#pragma once

#include "lockstep/optim/optimizer.hpp"

/// @file
/// Muon.

namespace lockstep::optim {

/// Options of Muon, as PyTorch's, and of the AdamW beside it, as its authors'.
struct MuonOptions {
  double lr = 1e-3;
  double weight_decay = 0.1;  ///< times lr: the share of the parameter that each step removes
  double momentum = 0.95;
  bool nesterov = true;
  std::int64_t ns_steps = 5;     ///< of Newton's and Schulz's iteration
  double eps = 1e-7;             ///< floor of the norm that it starts from
  bool match_rms_adamw = false;  ///< rates as long as AdamW's (Moonshot's), not the authors'
  bool adamw = false;            ///< these parameters are no hidden matrices
  double adamw_lr_factor = 1.0;  ///< AdamW's learning rate is lr times this
  double beta1 = 0.9, beta2 = 0.95, adamw_eps = 1e-10;  ///< of AdamW
  bool master_weights = true;  ///< keep an f32 copy of bf16 and f16 parameters
  /// Round bf16 parameters up or down at random, so that small steps count in the mean: for those
  /// without master weights.
  bool stochastic_rounding = false;
  StateFormat state_format = StateFormat::full;  ///< in how many bits it remembers

  /// @throws InvalidArgument for negative options, rates of decay outside [0, 1), or ns_steps
  /// outside 1 to 99.
  void check() const;
  /// Calls `visitor(name, member)` for all members.
  template <class Options, class Visitor>
  static void visit(Options& options, Visitor visitor) {
    visitor("lr", options.lr);
    visitor("weight_decay", options.weight_decay);
    visitor("momentum", options.momentum);
    visitor("nesterov", options.nesterov);
    visitor("ns_steps", options.ns_steps);
    visitor("eps", options.eps);
    visitor("match_rms_adamw", options.match_rms_adamw);
    visitor("adamw", options.adamw);
    visitor("adamw_lr_factor", options.adamw_lr_factor);
    visitor("beta1", options.beta1);
    visitor("beta2", options.beta2);
    visitor("adamw_eps", options.adamw_eps);
    visitor("master_weights", options.master_weights);
  }
};

/// Momentum made orthogonal (Jordan et al. 2024) for hidden matrices, AdamW for the rest: vectors,
/// and groups with `adamw`, in which embeddings and the output layer belong. Parameters of more
/// than two dimensions count as matrices of as many rows as their first. Made of tensor ops, but
/// for AdamW; the products of its iteration are in the dtype of the state (f32), where PyTorch's
/// are in bf16.
class Muon final : public OptimizerWith<MuonOptions> {
 public:
  /// One group. @throws InvalidArgument for options out of range, no parameters, and as
  /// `Optimizer::add_group`.
  explicit Muon(ParameterList parameters, const MuonOptions& options = {})
      : Muon(Groups{{std::move(parameters), options}}) {}
  /// Several groups. @throws InvalidArgument as above.
  explicit Muon(const Groups& groups) : OptimizerWith(groups) {
    for (const auto& group : groups) check_parameters(group.parameters);
  }

 private:
  void check_parameters(const ParameterList& parameters) const override {
    refuse_shards(parameters);
  }
  StateNames state_names(std::size_t group, const Tensor& parameter) const override;
  void update(std::size_t group, std::span<ParameterState* const> parameters,
              const StepScalars& scalars) override;
};

}  // namespace lockstep::optim
