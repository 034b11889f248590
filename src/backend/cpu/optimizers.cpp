#include "backend/cpu/optimizers.hpp"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "cpu/optimizer_loops.hpp"
#include "cpu/tiles.hpp"
#include "lockstep/core/parallel.hpp"

namespace lockstep::backend {
namespace {

using cpu_kernels::Accumulate;
using cpu_kernels::tile_elements;
using kernels::OptimizerTensors;

/// One array of an optimizer, read and written tile by tile in the accumulation type of the
/// parameter.
class TiledArray {
 public:
  TiledArray(const ArrayView& view, Accumulate type, std::int64_t n) : view_(view) {
    if (!view) return;
    LOCKSTEP_CHECK(cpu_kernels::contiguous_count(view) == n, InvalidArgument,
                   "optimizer: arrays of shape ", view.shape, " and strides ", view.strides,
                   " are not contiguous arrays of ", n, " elements");
    LOCKSTEP_CHECK(is_floating(view.dtype) && cpu_kernels::accumulate_of(view.dtype) == type,
                   Unsupported, "optimizer: dtype ", view.dtype,
                   " beside parameters that compute in ", type == Accumulate::f64 ? "f64" : "f32");
    direct_ = cpu_kernels::is_accumulate_type(view.dtype);
    load_ = cpu_kernels::loops().load[static_cast<std::size_t>(view.dtype)];
    store_ = cpu_kernels::loops().store(type, view.dtype);
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
  cpu_kernels::LoadLoop load_ = nullptr;
  cpu_kernels::StoreLoop store_ = nullptr;
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
      !tensors.master || cpu_kernels::contiguous_count(tensors.parameter) == tensors.master.numel(),
      InvalidArgument, "optimizer: a parameter of shape ", tensors.parameter.shape, " and strides ",
      tensors.parameter.strides, " does not fit its master copy of shape ", tensors.master.shape);
}

/// Calls `visit(pointers, n)` for elements [begin, end) of a tensor, tile by tile; pointers are
/// those of the parameter (or its master copy), gradient and states.
template <class Visit>
void visit_tiles(const OptimizerTensors& tensors, std::int64_t begin, std::int64_t end,
                 const Visit& visit) {
  const ArrayView& parameter = tensors.parameter;
  const ArrayView& updated = tensors.master ? tensors.master : parameter;
  const Accumulate type = cpu_kernels::accumulate_of(parameter.dtype);
  const auto round = tensors.master ? cpu_kernels::loops().store(type, parameter.dtype) : nullptr;
  const auto size = static_cast<std::int64_t>(size_of(parameter.dtype));
  const std::int64_t total = parameter.numel();
  std::array tiled{TiledArray(updated, type, total), TiledArray(tensors.gradient, type, total),
                   TiledArray(tensors.state1, type, total), TiledArray(tensors.state2, type, total),
                   TiledArray(tensors.state3, type, total)};
  const bool direct = std::all_of(tiled.begin(), tiled.end(),
                                  [](const TiledArray& array) { return array.direct(); });
  const std::int64_t step = direct ? end - begin : tile_elements;
  for (std::int64_t first = begin; first < end; first += step) {
    const std::int64_t n = std::min(step, end - first);
    std::array<void*, 5> pointers;
    for (std::size_t k = 0; k < pointers.size(); ++k) pointers[k] = tiled[k].load_tile(first, n);
    visit(pointers, n);
    for (std::size_t k = 0; k < pointers.size(); ++k)
      if (k != 1) tiled[k].store_tile(first, n);
    if (round) round(parameter.as<char>() + first * size, 1, pointers[0], n);
  }
}

/// The coefficients of each tensor's next step: mostly those of its neighbour's.
template <class Rule>
class NextSteps {
 public:
  explicit NextSteps(const kernels::OptimizerArguments<Rule>& arguments) : arguments_(arguments) {}
  const typename Rule::Coefficients& of(const OptimizerTensors& tensors) {
    const std::int64_t step = tensors.counter->steps + 1;
    const bool own = tensors.carried || arguments_.squares;
    if (own || step != step_)
      coefficients_ =
          arguments_.coefficients(step, tensors.carried, &tensors - arguments_.tensors.data());
    step_ = step;
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
void step(const kernels::OptimizerArguments<Rule>& a,
          const cpu_kernels::OptimizerLoops<Rule>& loops, const char* optimizer) {
  if (a.state.skips()) return;
  NextSteps<Rule> next(a);
  const int states = a.rule.states();
  for (const OptimizerTensors& each : a.tensors) {
    check_operands(each, states, optimizer);
    check_wide(each);
    const auto type = cpu_kernels::accumulate_of(each.parameter.dtype);
    const auto loop = loops.loop[static_cast<std::size_t>(type)][states];
    const auto& coefficients = next.of(each);
    parallel_for(each.parameter.numel(), cpu_kernels::parallel_grain,
                 [&](std::int64_t begin, std::int64_t end) {
                   visit_tiles(each, begin, end, [&](const auto& arrays, std::int64_t n) {
                     loop(arrays.data(), n, coefficients);
                   });
                 });
    ++each.counter->steps;
    if constexpr (requires { coefficients.carried; }) *each.carried = coefficients.carried;
  }
}

/// The sums of squares of one tensor: those of chunks of fixed size, added in their order.
template <class Visit>
std::array<double, 2> measure_tensor(const OptimizerTensors& tensors, const Visit& visit) {
  constexpr std::int64_t chunk = 65536;
  const std::int64_t n = tensors.parameter.numel();
  std::vector<std::array<double, 2>> partials(static_cast<std::size_t>((n + chunk - 1) / chunk));
  parallel_for(
      static_cast<std::int64_t>(partials.size()), 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t c = begin; c < end; ++c) {
          auto& partial = partials[static_cast<std::size_t>(c)];
          visit_tiles(
              tensors, c * chunk, std::min(n, (c + 1) * chunk),
              [&](const auto& arrays, std::int64_t m) { visit(arrays, m, partial.data()); });
        }
      });
  std::array<double, 2> total = {};
  for (const auto& partial : partials) {
    total[0] += partial[0];
    total[1] += partial[1];
  }
  return total;
}

template <class Rule>
void measure(const kernels::OptimizerArguments<Rule>& a,
             const cpu_kernels::MeasureLoop<Rule>* loops, const char* optimizer) {
  if (a.state.skips()) return;
  for (std::size_t i = 0; i < a.tensors.size(); ++i) {
    const OptimizerTensors& each = a.tensors[i];
    check_operands(each, a.rule.states(), optimizer);
    check_wide(each);
    const auto loop =
        loops[static_cast<std::size_t>(cpu_kernels::accumulate_of(each.parameter.dtype))];
    // The squares are not known yet.
    const auto coefficients =
        kernels::OptimizerArguments<Rule>{.state = a.state, .rule = a.rule}.coefficients(
            each.counter->steps + 1, each.carried, 0);
    const auto squares = measure_tensor(each, [&](const auto& arrays, std::int64_t n, double* to) {
      loop(arrays.data(), n, coefficients, to);
    });
    std::copy(squares.begin(), squares.end(), a.squares + 2 * i);
  }
}

#define LOCKSTEP_OPTIMIZER(name, Rule)                               \
  void name(const kernels::OptimizerArguments<Rule>& a, StreamRef) { \
    step(a, cpu_kernels::loops().rows.optimizers->name, #name);      \
  }
LOCKSTEP_OPTIMIZERS(LOCKSTEP_OPTIMIZER)
#undef LOCKSTEP_OPTIMIZER
#define LOCKSTEP_OPTIMIZER(name, Rule)                                             \
  void name##_measure(const kernels::OptimizerArguments<Rule>& a, StreamRef) {     \
    measure<Rule>(a, cpu_kernels::loops().rows.optimizers->name##_measure, #name); \
  }
LOCKSTEP_LAYERWISE_OPTIMIZERS(LOCKSTEP_OPTIMIZER)
#undef LOCKSTEP_OPTIMIZER

}  // namespace

const kernels::OptimizerKernels& cpu_optimizers() {
  static constexpr kernels::OptimizerKernels table{
#define LOCKSTEP_OPTIMIZER(name, Rule) .name = name,
      LOCKSTEP_OPTIMIZERS(LOCKSTEP_OPTIMIZER)
#undef LOCKSTEP_OPTIMIZER
#define LOCKSTEP_OPTIMIZER(name, Rule) .name##_measure = name##_measure,
          LOCKSTEP_LAYERWISE_OPTIMIZERS(LOCKSTEP_OPTIMIZER)
#undef LOCKSTEP_OPTIMIZER
  };
  return table;
}

}  // namespace lockstep::backend
