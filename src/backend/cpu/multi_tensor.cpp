#include "arguments/multi_tensor.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "backend/cpu/families.hpp"
#include "cpu/tiles.hpp"
#include "lockstep/core/parallel.hpp"

namespace lockstep::backend {
namespace {

using host::Accumulate;
using host::tile_elements;
using kernels::OptimizerTensors;

/// One array of an optimizer, read and written tile by tile in the accumulation type of the
/// parameter.
class TiledArray {
 public:
  TiledArray(const ArrayView& view, Accumulate type, std::int64_t n) : view_(view) {
    if (!view) return;
    LOCKSTEP_CHECK(host::contiguous_count(view) == n, InvalidArgument,
                   "optimizer: arrays of shape ", view.shape, " and strides ", view.strides,
                   " are not contiguous arrays of ", n, " elements");
    LOCKSTEP_CHECK(is_floating(view.dtype) && host::accumulate_of(view.dtype) == type, Unsupported,
                   "optimizer: dtype ", view.dtype, " beside parameters that compute in ",
                   type == Accumulate::f64 ? "f64" : "f32");
    direct_ = host::is_accumulate_type(view.dtype);
    load_ = host::loops().load[static_cast<std::size_t>(view.dtype)];
    store_ = host::loops().store(type, view.dtype);
  }

  /// Elements [first, first + n) to work on, or null for an absent array.
  void* load_tile(std::int64_t first, std::int64_t n) {
    if (!view_) return nullptr;
    if (direct_) return place(first);
    load_(tile_.data(), place(first), 1, n);
    return tile_.data();
  }
  /// Writes back what `load_tile` gave.
  void store_tile(std::int64_t first, std::int64_t n) {
    if (view_ && !direct_) store_(place(first), 1, tile_.data(), n);
  }
  bool direct() const { return direct_; }

 private:
  void* place(std::int64_t first) const {
    return view_.as<char>() + first * static_cast<std::int64_t>(size_of(view_.dtype));
  }

  const ArrayView& view_;
  bool direct_ = true;
  host::LoadLoop load_ = nullptr;
  host::StoreLoop store_ = nullptr;
  alignas(64) std::array<float, tile_elements> tile_;
};

/// @throws InvalidArgument unless states and master copy are in the dtype that is computed in, and
/// the parameter fits its master copy.
void check_wide(const OptimizerTensors& tensors) {
  const DType parameter = tensors.parameter.dtype;
  const DType wide = parameter == DType::f64 ? DType::f64 : DType::f32;
  for (const ArrayView* each : {&tensors.master, &tensors.state1, &tensors.state2, &tensors.state3})
    LOCKSTEP_CHECK(!*each || each->dtype == wide, InvalidArgument, "optimizer: ", each->dtype,
                   " state of a ", parameter, " parameter; it must be ", wide);
  LOCKSTEP_CHECK(
      !tensors.master || host::contiguous_count(tensors.parameter) == tensors.master.numel(),
      InvalidArgument, "optimizer: a parameter of shape ", tensors.parameter.shape, " and strides ",
      tensors.parameter.strides, " does not fit its master copy of shape ", tensors.master.shape);
}

/// Calls `update(pointers, n)` over all elements of a tensor; pointers are those of the parameter
/// (or its master copy), gradient and states.
template <class Update>
void for_each_tile(const OptimizerTensors& tensors, Update update) {
  check_wide(tensors);
  const ArrayView& parameter = tensors.parameter;
  const ArrayView& updated = tensors.master ? tensors.master : parameter;
  const Accumulate type = host::accumulate_of(parameter.dtype);
  const auto round = tensors.master ? host::loops().store(type, parameter.dtype) : nullptr;
  const auto size = static_cast<std::int64_t>(size_of(parameter.dtype));
  const std::int64_t total = parameter.numel();
  parallel_for(total, host::parallel_grain, [&](std::int64_t begin, std::int64_t end) {
    std::array tiled{TiledArray(updated, type, total), TiledArray(tensors.gradient, type, total),
                     TiledArray(tensors.state1, type, total),
                     TiledArray(tensors.state2, type, total),
                     TiledArray(tensors.state3, type, total)};
    const bool direct = std::all_of(tiled.begin(), tiled.end(),
                                    [](const TiledArray& array) { return array.direct(); });
    const std::int64_t step = direct ? end - begin : tile_elements;
    for (std::int64_t first = begin; first < end; first += step) {
      const std::int64_t n = std::min(step, end - first);
      std::array<void*, 5> pointers;
      for (std::size_t k = 0; k < pointers.size(); ++k) pointers[k] = tiled[k].load_tile(first, n);
      update(pointers, n);
      for (std::size_t k = 0; k < pointers.size(); ++k)
        if (k != 1) tiled[k].store_tile(first, n);
      if (round) round(parameter.as<char>() + first * size, 1, pointers[0], n);
    }
  });
}

/// Sum of squares of one array: chunks of fixed size, added in their order.
double square_sum_of(const ArrayView& array) {
  const std::int64_t n = host::contiguous_count(array);
  const auto loop =
      host::loops().reduce_row(host::accumulate_of(array.dtype), ReduceOp::square_sum);
  LOCKSTEP_CHECK(n >= 0 && loop, Unsupported, "square_sum: needs contiguous floating arrays, got ",
                 array.dtype, " with strides ", array.strides);
  const auto load = host::loops().load[static_cast<std::size_t>(array.dtype)];
  const bool direct = host::is_accumulate_type(array.dtype);
  const auto size = static_cast<std::int64_t>(size_of(array.dtype));
  constexpr std::int64_t chunk = 65536;
  std::vector<double> partials(static_cast<std::size_t>((n + chunk - 1) / chunk));
  parallel_for(
      static_cast<std::int64_t>(partials.size()), 1, [&](std::int64_t begin, std::int64_t end) {
        std::array<float, tile_elements> tile;
        for (std::int64_t c = begin; c < end; ++c) {
          const std::int64_t last = std::min(n, (c + 1) * chunk);
          const std::int64_t step = direct ? chunk : tile_elements;
          for (std::int64_t i = c * chunk; i < last; i += step) {
            const void* from = array.as<char>() + i * size;
            const std::int64_t count = std::min(step, last - i);
            if (!direct) load(tile.data(), from, 1, count);
            loop(&partials[static_cast<std::size_t>(c)], direct ? from : tile.data(), count);
          }
        }
      });
  double total = 0;
  for (const double partial : partials) total += partial;
  return total;
}

/// The coefficients of each tensor's next step: mostly those of its neighbour's.
template <class Rule>
class NextSteps {
 public:
  explicit NextSteps(const kernels::OptimizerArguments<Rule>& arguments) : arguments_(arguments) {}
  const typename Rule::Coefficients& of(const OptimizerTensors& tensors) {
    if (const std::int64_t step = *tensors.steps + 1; step != step_) {
      step_ = step;
      coefficients_ = arguments_.coefficients(step);
    }
    return coefficients_;
  }

 private:
  const kernels::OptimizerArguments<Rule>& arguments_;
  std::int64_t step_ = 0;
  typename Rule::Coefficients coefficients_ = {};
};

/// @throws Unsupported or InvalidArgument if the dtype is not floating, or one of the `used` states
/// is absent.
void check_operands(const OptimizerTensors& tensors, int used, const char* optimizer) {
  LOCKSTEP_CHECK(is_floating(tensors.parameter.dtype), Unsupported, optimizer, ": dtype ",
                 tensors.parameter.dtype, " is not offered on device cpu");
  const ArrayView* const states[] = {&tensors.state1, &tensors.state2, &tensors.state3};
  for (int k = 0; k < used; ++k)
    LOCKSTEP_CHECK(*states[k], InvalidArgument, optimizer, ": state ", k + 1, " of ", used,
                   " is absent");
}

template <class Rule>
void step(const kernels::OptimizerArguments<Rule>& a, const host::OptimizerLoops<Rule>& loops,
          const char* optimizer) {
  if (a.state.skips()) return;
  NextSteps<Rule> next(a);
  const int states = a.rule.states();
  for (const OptimizerTensors& each : a.tensors) {
    check_operands(each, states, optimizer);
    const auto type = host::accumulate_of(each.parameter.dtype);
    const auto loop = loops.loop[static_cast<std::size_t>(type)][states];
    const auto& coefficients = next.of(each);
    for_each_tile(each, [&](const std::array<void*, 5>& arrays, std::int64_t n) {
      loop(arrays.data(), n, coefficients);
    });
    ++*each.steps;
  }
}

#define LOCKSTEP_OPTIMIZER(name, Rule)                               \
  void name(const kernels::OptimizerArguments<Rule>& a, StreamRef) { \
    step(a, host::loops().rows.name, #name);                         \
  }
LOCKSTEP_OPTIMIZERS(LOCKSTEP_OPTIMIZER)
#undef LOCKSTEP_OPTIMIZER

void square_sum(const kernels::SquareSumArguments& a, StreamRef) {
  double total = 0;
  for (const ArrayView& array : a.arrays) total += square_sum_of(array);
  *a.out.as<double>() = total;
}

void scale_all(std::span<const ArrayView> arrays, double factor, StreamRef stream) {
  for (const ArrayView& array : arrays)
    cpu().elementwise.unary({.op = UnaryOp::affine,
                             .y = array,
                             .x = array,
                             .constants = {.alpha = factor, .beta = 0.0}},
                            stream);
}

void clip(const kernels::ClipArguments& a, StreamRef stream) {
  const double factor = a.limit / (std::sqrt(*a.square_sum.as<double>()) + 1e-6);
  if (factor >= 1) return;  // NaN goes on: it must not pass for a small norm
  scale_all(a.arrays, factor, stream);
}

void divide(const kernels::DivideArguments& a, StreamRef stream) {
  const double divisor = *a.divisor.as<double>();
  if (divisor != 1) scale_all(a.arrays, 1 / divisor, stream);
}

void update_loss_scale(const kernels::LossScaleArguments& a, StreamRef) {
  double& scale = *a.scale.as<double>();
  std::int64_t& finite_steps = *a.finite_steps.as<std::int64_t>();
  std::int64_t& skipped_steps = *a.skipped_steps.as<std::int64_t>();
  const LossScale next = functional::next_loss_scale(a.rule, {scale, finite_steps, skipped_steps},
                                                     *a.found_inf.as<double>() != 0);
  scale = next.value;
  finite_steps = next.finite_steps;
  skipped_steps = next.skipped_steps;
}

}  // namespace

kernels::MultiTensorKernels cpu_multi_tensor() {
  kernels::MultiTensorKernels table{.square_sum = square_sum,
                                    .clip = clip,
                                    .divide = divide,
                                    .update_loss_scale = update_loss_scale};
#define LOCKSTEP_OPTIMIZER(name, Rule) table.name = name;
  LOCKSTEP_OPTIMIZERS(LOCKSTEP_OPTIMIZER)
#undef LOCKSTEP_OPTIMIZER
  return table;
}

}  // namespace lockstep::backend
