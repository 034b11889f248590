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
using kernels::FlatArray;
using kernels::OptimizerTensors;

/// What a loop works on: the parameter (or its master copy), the gradient, the states.
constexpr std::size_t operands = 2 + most_optimizer_states;
constexpr std::size_t gradient_operand = 1;
std::array<const FlatArray*, operands> operands_of(const OptimizerTensors& tensors) {
  return {tensors.master ? &tensors.master : &tensors.parameter, &tensors.gradient, &tensors.state1,
          &tensors.state2, &tensors.state3};
}

void* place_in(const FlatArray& array, std::int64_t element) {
  return static_cast<char*>(array.data) + element * static_cast<std::int64_t>(size_of(array.dtype));
}

/// An operand, read and written tile by tile in the accumulation type of the parameter.
class TiledArray {
 public:
  /// @param operand its place among those of the tensor
  TiledArray(const OptimizerTensors& tensors, std::size_t operand)
      : array_(*operands_of(tensors)[operand]),
        direct_(!array_ || cpu_kernels::is_accumulate_type(array_.dtype)) {
    if (direct_) return;
    const Accumulate type = cpu_kernels::accumulate_of(tensors.parameter.dtype);
    load_ = cpu_kernels::loops().load[static_cast<std::size_t>(array_.dtype)];
    store_ = cpu_kernels::loops().store(type, array_.dtype);
    const bool is_state = operand > gradient_operand;
    rounds_ = is_state || (operand == 0 && tensors.rounds_stochastically);
    if (rounds_)
      draw_ = rounding_draw(tensors.position, tensors.counter->steps + 1,
                            is_state ? static_cast<int>(operand - gradient_operand) : 0);
  }

  /// Elements [first, first + n) to work on, or null for an absent array.
  void* load_tile(std::int64_t first, std::int64_t n) {
    if (!array_) return nullptr;
    if (direct_) return place_in(array_, first);
    if (array_.scales)
      compact().load_codes(tile_.data(), codes(first), scales(first), n, array_.nonnegative);
    else
      load_(tile_.data(), place_in(array_, first), 1, n);
    return tile_.data();
  }
  /// Writes back what `load_tile` gave.
  void store_tile(std::int64_t first, std::int64_t n) {
    if (direct_) return;
    if (array_.scales)
      compact().store_codes(codes(first), scales(first), tile_.data(), n, array_.nonnegative, draw_,
                            first);
    else if (rounds_)
      compact().store_bf16(static_cast<BFloat16*>(place_in(array_, first)), tile_.data(), n, draw_,
                           first);
    else
      store_(place_in(array_, first), 1, tile_.data(), n);
  }

 private:
  static const cpu_kernels::CompactLoops& compact() {
    return cpu_kernels::loops().rows.optimizers->compact;
  }
  std::uint8_t* codes(std::int64_t first) const {
    return static_cast<std::uint8_t*>(array_.data) + first;
  }
  float* scales(std::int64_t first) const { return array_.scales + first / state_block; }

  const FlatArray& array_;
  bool direct_;
  bool rounds_ = false;  // stochastically
  PhiloxState draw_ = {};
  cpu_kernels::LoadLoop load_ = nullptr;
  cpu_kernels::StoreLoop store_ = nullptr;
  alignas(64) std::array<float, tile_elements> tile_;
};

/// As visit_tiles, where operands have to be converted.
template <class Visit>
void visit_converted(const OptimizerTensors& tensors, std::int64_t begin, std::int64_t end,
                     const Visit& visit) {
  const FlatArray& parameter = tensors.parameter;
  const Accumulate type = cpu_kernels::accumulate_of(parameter.dtype);
  const auto round = tensors.master ? cpu_kernels::loops().store(type, parameter.dtype) : nullptr;
  std::array tiled{TiledArray(tensors, 0), TiledArray(tensors, 1), TiledArray(tensors, 2),
                   TiledArray(tensors, 3), TiledArray(tensors, 4)};
  static_assert(tiled.size() == operands);
  for (std::int64_t first = begin; first < end; first += tile_elements) {
    const std::int64_t n = std::min(tile_elements, end - first);
    std::array<void*, operands> pointers;
    for (std::size_t k = 0; k < operands; ++k) pointers[k] = tiled[k].load_tile(first, n);
    visit(pointers, n);
    for (std::size_t k = 0; k < operands; ++k)
      if (k != gradient_operand) tiled[k].store_tile(first, n);
    if (round) round(place_in(parameter, first), 1, pointers[0], n);
  }
}

/// Calls `visit(pointers, n)` for elements [begin, end) of a tensor, part by part; pointers are
/// those of its operands. Parts of states in 8 bits must begin with a block.
template <class Visit>
void visit_tiles(const OptimizerTensors& tensors, std::int64_t begin, std::int64_t end,
                 const Visit& visit) {
  const auto all = operands_of(tensors);
  bool direct = !tensors.master;
  for (const FlatArray* each : all)
    direct = direct && (!*each || cpu_kernels::is_accumulate_type(each->dtype));
  if (!direct) return visit_converted(tensors, begin, end, visit);
  std::array<void*, operands> pointers = {};
  for (std::size_t k = 0; k < operands; ++k)
    if (*all[k]) pointers[k] = place_in(*all[k], begin);
  visit(pointers, end - begin);
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

/// @param used states of the rule @param by_element whether it takes states in few bits
/// @throws Unsupported or InvalidArgument unless the dtypes are floating, all that is used is there
/// and fits, and states and master copy are in the dtype that is computed in.
void check_operands(const OptimizerTensors& tensors, int used, bool by_element,
                    const char* optimizer) {
  const FlatArray& parameter = tensors.parameter;
  LOCKSTEP_CHECK(is_floating(parameter.dtype), Unsupported, optimizer, ": dtype ", parameter.dtype,
                 " is not offered on device cpu");
  const DType wide = parameter.dtype == DType::f64 ? DType::f64 : DType::f32;
  const auto all = operands_of(tensors);
  for (std::size_t k = 0; k < operands; ++k) {
    const FlatArray& array = *all[k];
    const int state = static_cast<int>(k) - 1;  // from 1; others are none
    LOCKSTEP_CHECK(array || state < 1 || state > used, InvalidArgument, optimizer, ": state ",
                   state, " of ", used, " is absent");
    if (!array) continue;
    LOCKSTEP_CHECK(array.count == parameter.count, InvalidArgument, optimizer, ": an array of ",
                   array.count, " elements beside a parameter of ", parameter.count);
    const bool in_few_bits = by_element && wide == DType::f32 && state >= 1 &&
                             (array.scales ? array.dtype == DType::u8 : array.dtype == DType::bf16);
    LOCKSTEP_CHECK(
        array.dtype == wide || in_few_bits || (k == 0 && !tensors.master) || k == gradient_operand,
        InvalidArgument, optimizer, ": ", array.dtype, " state of a ", parameter.dtype,
        " parameter; it must be ", wide);
  }
  LOCKSTEP_CHECK(
      !tensors.rounds_stochastically ||
          (by_element && parameter.dtype == DType::bf16 && !tensors.master),
      Unsupported, optimizer, ": stochastic rounding of a ", parameter.dtype,
      " parameter; it is offered for bf16 without master copies, and not for rules by layer");
  const DType gradient = tensors.gradient.dtype;
  LOCKSTEP_CHECK(is_floating(gradient) && (gradient == DType::f64) == (wide == DType::f64),
                 Unsupported, optimizer, ": dtype ", gradient,
                 " beside parameters that compute in ", wide);
}

template <class Rule>
void step(const kernels::OptimizerArguments<Rule>& a,
          const cpu_kernels::OptimizerLoops<Rule>& loops, const char* optimizer) {
  if (a.state.skips()) return;
  NextSteps<Rule> next(a);
  const int states = a.rule.states();
  for (const OptimizerTensors& each : a.tensors) {
    check_operands(each, states, !is_layerwise<Rule>, optimizer);
    const auto type = cpu_kernels::accumulate_of(each.parameter.dtype);
    const auto loop = loops.loop[static_cast<std::size_t>(type)][states];
    const auto& coefficients = next.of(each);
    static_assert(tile_elements % state_block == 0);
    const std::int64_t count = each.parameter.count;
    parallel_for(
        (count + tile_elements - 1) / tile_elements, cpu_kernels::parallel_grain / tile_elements,
        [&](std::int64_t begin, std::int64_t end) {
          visit_tiles(
              each, begin * tile_elements, std::min(count, end * tile_elements),
              [&](const auto& arrays, std::int64_t n) { loop(arrays.data(), n, coefficients); });
        });
    ++each.counter->steps;
    if constexpr (requires { coefficients.carried; }) *each.carried = coefficients.carried;
  }
}

/// The sums of squares of one tensor: those of chunks of fixed size, added in their order.
template <class Visit>
std::array<double, 2> measure_tensor(const OptimizerTensors& tensors, const Visit& visit) {
  constexpr std::int64_t chunk = 65536;
  const std::int64_t n = tensors.parameter.count;
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
    check_operands(each, a.rule.states(), false, optimizer);
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
