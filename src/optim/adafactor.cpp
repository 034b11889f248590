#include "lockstep/optim/adafactor.hpp"

#include <limits>

#include "optim/composed.hpp"
#include "optim/option_checks.hpp"

namespace lockstep::optim {
namespace {

constexpr std::string_view factored[] = {"row_var", "col_var"};
constexpr std::string_view whole[] = {"variance"};

double machine_epsilon(DType dtype) {
  return dtype == DType::f64 ? std::numeric_limits<double>::epsilon()
                             : double{std::numeric_limits<float>::epsilon()};
}

Tensor root_mean_square(const Tensor& x) { return sqrt(mean(square(x))); }

/// The mean of squared gradients, brought up to date by a share of this one's.
Tensor second_moment(ComposedUpdate& now, const Tensor& share, double eps1) {
  const Tensor squares = square(now.gradient);
  if (squares.dim() <= 1) {
    move_towards(now.states[0], squares, share);
    return now.states[0];
  }
  Tensor &rows = now.states[0], &columns = now.states[1];
  move_towards(rows, mean(squares, -1, true), share);
  move_towards(columns, mean(squares, -2, true), share);
  return rows * columns / clamp_min(mean(rows, -2, true), eps1);
}

void update_one(ParameterState& each, const AdafactorOptions& o, const StepScalars& scalars) {
  ComposedUpdate now(each, scalars, o.maximize);
  const Tensor& lr = scalars.lr;
  const DType dtype = now.value.dtype();
  const double eps1 = o.eps1 > 0 ? o.eps1 : machine_epsilon(dtype);
  const Tensor rate =
      clamp_min(root_mean_square(now.value), o.eps2) * minimum(lr, rsqrt(now.step)).to(dtype);
  if (o.weight_decay != 0) now.value.mul_((1.0 - lr * o.weight_decay).to(dtype));
  const Tensor share = pow(now.step, o.beta2_decay).to(dtype);
  const Tensor variance = second_moment(now, share, eps1);
  const Tensor step = now.gradient * rsqrt(clamp_min(variance, eps1 * eps1));
  now.value.sub_(step * (rate / clamp_min(root_mean_square(step) / o.d, 1.0)));
  now.finish();
}

}  // namespace

void AdafactorOptions::check() const {
  check_not_negative("Adafactor",
                     {{"lr", lr}, {"eps1", eps1}, {"eps2", eps2}, {"weight_decay", weight_decay}});
  check_rounding("Adafactor", stochastic_rounding, master_weights);
  LOCKSTEP_CHECK(beta2_decay <= 0, InvalidArgument, "Adafactor: beta2_decay is ", beta2_decay,
                 "; it must not be positive");
  LOCKSTEP_CHECK(d >= 1, InvalidArgument, "Adafactor: d is ", d, "; it must be at least 1");
}

StateNames Adafactor::state_names(std::size_t, const Tensor& parameter) const {
  return parameter.dim() > 1 ? StateNames(factored) : StateNames(whole);
}

Shape Adafactor::state_shape(const Tensor& parameter, std::string_view state) const {
  Shape shape = parameter.shape();
  if (state == "row_var") shape[shape.size() - 1] = 1;
  if (state == "col_var") shape[shape.size() - 2] = 1;
  return shape;
}

void Adafactor::update(std::size_t group, std::span<ParameterState* const> parameters,
                       const StepScalars& scalars) {
  for (ParameterState* each : parameters)
    if (each->parameter.numel() > 0) update_one(*each, options(group), scalars);
}

}  // namespace lockstep::optim
