#include "lockstep/optim/muon.hpp"

#include <algorithm>
#include <cmath>

#include "core/alike_on_all_ranks.hpp"
#include "optim/composed.hpp"
#include "optim/option_checks.hpp"

namespace lockstep::optim {
namespace {

constexpr std::string_view muon_states[] = {"momentum_buffer"};
constexpr std::string_view adamw_states[] = {"exp_avg", "exp_avg_sq"};

bool is_hidden_matrix(const MuonOptions& options, const Tensor& parameter) {
  return !options.adamw && parameter.dim() >= 2;
}

/// A matrix with the same singular vectors, whose singular values are near 1: an odd polynomial
/// that is steep at 0, applied some times (Jordan et al. 2024).
Tensor orthogonalized(const Tensor& matrix, std::int64_t steps, double eps) {
  constexpr double a = 3.4445, b = -4.7750, c = 2.0315;
  const AlikeOnAllRanks replicas_stay_equal;
  const bool tall = matrix.size(0) > matrix.size(1);
  Tensor x = tall ? matrix.t().contiguous() : matrix;
  x = x / clamp_min(norm(x), eps);
  for (std::int64_t step = 0; step < steps; ++step) {
    const Tensor gram = matmul(x, x.t());
    x = x * a + matmul(gram * b + matmul(gram, gram) * c, x);
  }
  return tall ? x.t() : x;
}

double rate_factor(const MuonOptions& o, double rows, double columns) {
  if (o.match_rms_adamw) return 0.2 * std::sqrt(std::max(rows, columns));
  return std::sqrt(std::max(1.0, rows / columns));
}

void update_matrix(ParameterState& each, const MuonOptions& o, const StepScalars& scalars) {
  ComposedUpdate now(each, scalars, false);
  const Tensor& lr = scalars.lr;
  Tensor& momentum = now.states[0];
  momentum.add_(now.gradient - momentum, 1 - o.momentum);
  const Tensor ahead =
      o.nesterov ? now.gradient + (momentum - now.gradient) * o.momentum : momentum;
  const Tensor matrix = ahead.reshape({ahead.size(0), -1});
  const double factor =
      rate_factor(o, static_cast<double>(matrix.size(0)), static_cast<double>(matrix.size(1)));
  const DType dtype = now.value.dtype();
  now.value.mul_((1.0 - lr * o.weight_decay).to(dtype));
  now.value.sub_(orthogonalized(matrix, o.ns_steps, o.eps).reshape(ahead.shape()) *
                 (lr * factor).to(dtype));
  now.finish();
}

}  // namespace

void MuonOptions::check() const {
  check_not_negative("Muon", {{"lr", lr},
                              {"weight_decay", weight_decay},
                              {"momentum", momentum},
                              {"eps", eps},
                              {"adamw_lr_factor", adamw_lr_factor},
                              {"adamw_eps", adamw_eps}});
  check_rounding("Muon", stochastic_rounding, master_weights);
  check_decay_rates("Muon", {{"momentum", momentum}, {"beta1", beta1}, {"beta2", beta2}});
  LOCKSTEP_CHECK(ns_steps >= 1 && ns_steps < 100, InvalidArgument, "Muon: ns_steps is ", ns_steps,
                 "; it must be 1 to 99");
}

StateNames Muon::state_names(std::size_t group, const Tensor& parameter) const {
  return is_hidden_matrix(options(group), parameter) ? StateNames(muon_states)
                                                     : StateNames(adamw_states);
}

void Muon::update(std::size_t group, std::span<ParameterState* const> parameters,
                  const StepScalars& scalars) {
  const MuonOptions& o = options(group);
  std::vector<ParameterState*> rest;
  for (ParameterState* each : parameters) {
    if (!is_hidden_matrix(o, each->parameter))
      rest.push_back(each);
    else if (each->parameter.numel() > 0)
      update_matrix(*each, o, scalars);
  }
  if (rest.empty()) return;
  StepScalars aside = scalars;
  if (o.adamw_lr_factor != 1) aside.lr = scalars.lr * o.adamw_lr_factor;
  run_rule(&kernels::OptimizerKernels::adam,
           {.beta1 = o.beta1,
            .beta2 = o.beta2,
            .eps = o.adamw_eps,
            .weight_decay = o.weight_decay,
            .decoupled_decay = true},
           rest, aside);
}

}  // namespace lockstep::optim
