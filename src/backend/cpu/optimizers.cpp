#include "backend/cpu/optimizers.hpp"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "cpu/array_parts.hpp"
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

/// Some elements of an array in few bits, the first of which is a multiple of `state_block`.
class CompactPart {
 public:
  CompactPart(const FlatArray& array, std::int64_t first, std::int64_t n)
      : array_(array), first_(first), n_(n) {}
  void load(float* to) const {
    if (array_.scales)
      compact().load_codes(to, codes(), scales(), n_, array_.nonnegative);
    else
      cpu_kernels::loops().load[static_cast<std::size_t>(DType::bf16)](to, place_in(array_, first_),
                                                                       1, n_);
  }
  void store(const float* from, const PhiloxState& draw) const {
    if (array_.scales)
      compact().store_codes(codes(), scales(), from, n_, array_.nonnegative, draw, first_);
    else
      compact().store_bf16(static_cast<BFloat16*>(place_in(array_, first_)), from, n_, draw,
                           first_);
  }

 private:
  static const cpu_kernels::CompactLoops& compact() {
    return cpu_kernels::loops().rows.optimizers->compact;
  }
  std::uint8_t* codes() const { return static_cast<std::uint8_t*>(array_.data) + first_; }
  float* scales() const { return array_.scales + first_ / state_block; }

  const FlatArray& array_;
  std::int64_t first_, n_;
};

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
      draw_ = rounding_draw(tensors.rounding_key, tensors.counter->steps + 1,
                            is_state ? static_cast<int>(operand - gradient_operand) : 0);
  }

  /// Elements [first, first + n) to work on, or null for an absent array.
  void* load_tile(std::int64_t first, std::int64_t n) {
    if (!array_) return nullptr;
    if (direct_) return place_in(array_, first);
    if (rounds_)
      CompactPart(array_, first, n).load(tile_.data());
    else
      load_(tile_.data(), place_in(array_, first), 1, n);
    return tile_.data();
  }
  /// Writes back what `load_tile` gave.
  void store_tile(std::int64_t first, std::int64_t n) {
    if (direct_) return;
    if (rounds_)
      CompactPart(array_, first, n).store(tile_.data(), draw_);
    else
      store_(place_in(array_, first), 1, tile_.data(), n);
  }

 private:
  const FlatArray& array_;
  bool direct_;
  bool rounds_ = false;  // stochastically
  PhiloxState draw_ = {};
  cpu_kernels::LoadLoop load_ = nullptr;
  cpu_kernels::StoreLoop store_ = nullptr;
  alignas(64) std::array<float, tile_elements> tile_;
};

/// As visit_tiles, where operands have to be converted.
template <bool writes, class Visit>
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
    if constexpr (!writes) continue;
    for (std::size_t k = 0; k < operands; ++k)
      if (k != gradient_operand) tiled[k].store_tile(first, n);
    if (round) round(place_in(parameter, first), 1, pointers[0], n);
  }
}

/// Calls `visit(pointers, n)` for elements [begin, end) of a tensor, part by part; pointers are
/// those of its operands. Parts of states in 8 bits must begin with a block.
/// @tparam writes whether `visit` changes more than its own
template <bool writes, class Visit>
void visit_tiles(const OptimizerTensors& tensors, std::int64_t begin, std::int64_t end,
                 const Visit& visit) {
  const auto all = operands_of(tensors);
  bool direct = !tensors.master;
  for (const FlatArray* each : all)
    direct = direct && (!*each || cpu_kernels::is_accumulate_type(each->dtype));
  if (!direct) return visit_converted<writes>(tensors, begin, end, visit);
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

/// @param used states of the rule
/// @throws Unsupported or InvalidArgument unless the dtypes are floating, all that is used is there
/// and fits, and states and master copy are in the dtype that is computed in.
void check_operands(const OptimizerTensors& tensors, int used, const char* optimizer) {
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
    const bool in_few_bits = wide == DType::f32 && state >= 1 &&
                             (array.scales ? array.dtype == DType::u8 : array.dtype == DType::bf16);
    LOCKSTEP_CHECK(
        array.dtype == wide || in_few_bits || (k == 0 && !tensors.master) || k == gradient_operand,
        InvalidArgument, optimizer, ": ", array.dtype, " state of a ", parameter.dtype,
        " parameter; it must be ", wide);
  }
  LOCKSTEP_CHECK(
      !tensors.rounds_stochastically || (parameter.dtype == DType::bf16 && !tensors.master),
      Unsupported, optimizer, ": stochastic rounding of a ", parameter.dtype,
      " parameter; it is offered for bf16 without master copies");
  const DType gradient = tensors.gradient.dtype;
  LOCKSTEP_CHECK(is_floating(gradient) && (gradient == DType::f64) == (wide == DType::f64),
                 Unsupported, optimizer, ": dtype ", gradient,
                 " beside parameters that compute in ", wide);
}

/// What threads share of a tensor: a part of states in 8 bits begins with a block.
std::int64_t tiles_of(const OptimizerTensors& tensors) {
  static_assert(tile_elements % state_block == 0);
  return (tensors.parameter.count + tile_elements - 1) / tile_elements;
}

std::int64_t count_of(const OptimizerTensors& tensors) { return tensors.parameter.count; }

template <class Rule>
void step(const kernels::OptimizerArguments<Rule>& a,
          const cpu_kernels::OptimizerLoops<Rule>& loops, const char* optimizer) {
  if (a.state.skips()) return;
  const int states = a.rule.states();
  for (const OptimizerTensors& each : a.tensors) check_operands(each, states, optimizer);
  const std::int64_t grain = cpu_kernels::grain_of(cpu_kernels::total_units(a.tensors, count_of),
                                                   cpu_kernels::parallel_grain / tile_elements);
  parallel_for(
      cpu_kernels::total_units(a.tensors, tiles_of), grain,
      [&](std::int64_t first_tile, std::int64_t last_tile) {
        NextSteps<Rule> next(a);
        const auto update = [&](const OptimizerTensors& each, std::int64_t begin,
                                std::int64_t end) {
          const auto type = cpu_kernels::accumulate_of(each.parameter.dtype);
          const auto loop = loops.loop[static_cast<std::size_t>(type)][states];
          const auto& coefficients = next.of(each);
          visit_tiles<true>(
              each, begin * tile_elements, std::min(each.parameter.count, end * tile_elements),
              [&](const auto& arrays, std::int64_t n) { loop(arrays.data(), n, coefficients); });
        };
        cpu_kernels::visit_parts(a.tensors, tiles_of, first_tile, last_tile, update);
      });
  // Threads read both until all have done their part.
  NextSteps<Rule> next(a);
  for (const OptimizerTensors& each : a.tensors) {
    if constexpr (requires(typename Rule::Coefficients c) { c.carried; })
      *each.carried = next.of(each).carried;
    ++each.counter->steps;
  }
}

/// Elements of a tensor whose squares are added up before those of others.
constexpr std::int64_t chunk = 65536;

std::int64_t chunks_of(const OptimizerTensors& tensors) {
  return (tensors.parameter.count + chunk - 1) / chunk;
}

/// A tensor's sums of squares are those of its chunks, added in their order.
template <class Rule>
void measure(const kernels::OptimizerArguments<Rule>& a,
             const cpu_kernels::MeasureLoop<Rule>* loops, const char* optimizer) {
  if (a.state.skips()) return;
  for (const OptimizerTensors& each : a.tensors) check_operands(each, a.rule.states(), optimizer);
  std::vector<std::array<double, 2>> partials(
      static_cast<std::size_t>(cpu_kernels::total_units(a.tensors, chunks_of)));
  const auto measure_chunks = [&](std::int64_t first_chunk, std::int64_t last_chunk) {
    auto next = partials.begin() + first_chunk;
    const auto visit = [&](const OptimizerTensors& each, std::int64_t begin, std::int64_t end) {
      const auto loop =
          loops[static_cast<std::size_t>(cpu_kernels::accumulate_of(each.parameter.dtype))];
      // The squares are not known yet.
      const auto coefficients =
          kernels::OptimizerArguments<Rule>{.state = a.state, .rule = a.rule}.coefficients(
              each.counter->steps + 1, each.carried, 0);
      for (std::int64_t c = begin; c < end; ++c, ++next)
        visit_tiles<false>(each, c * chunk, std::min(each.parameter.count, (c + 1) * chunk),
                           [&](const auto& arrays, std::int64_t n) {
                             loop(arrays.data(), n, coefficients, next->data());
                           });
    };
    cpu_kernels::visit_parts(a.tensors, chunks_of, first_chunk, last_chunk, visit);
  };
  parallel_for(static_cast<std::int64_t>(partials.size()),
               cpu_kernels::grain_of(cpu_kernels::total_units(a.tensors, count_of), 1),
               measure_chunks);
  auto next = partials.cbegin();
  for (std::size_t i = 0; i < a.tensors.size(); ++i) {
    double* const squares = a.squares + 2 * i;
    squares[0] = squares[1] = 0;
    for (std::int64_t c = chunks_of(a.tensors[i]); c > 0; --c, ++next) {
      squares[0] += (*next)[0];
      squares[1] += (*next)[1];
    }
  }
}

/// Calls `visit(kept, full, first, n)` for all parts of a state that is kept in few bits.
template <class Visit>
void transfer(const kernels::StateTransferArguments& a, const Visit& visit) {
  LOCKSTEP_CHECK(a.full.dtype == DType::f32 && a.full.count == a.kept.count &&
                     a.kept.dtype == (a.kept.scales ? DType::u8 : DType::bf16),
                 InvalidArgument, "optimizer: ", a.kept.count, " elements in ", a.kept.dtype,
                 " of a state of ", a.full.count, " in ", a.full.dtype);
  parallel_for((a.full.count + tile_elements - 1) / tile_elements,
               cpu_kernels::parallel_grain / tile_elements,
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t tile = begin; tile < end; ++tile) {
                   const std::int64_t first = tile * tile_elements;
                   visit(CompactPart(a.kept, first, std::min(tile_elements, a.full.count - first)),
                         static_cast<float*>(place_in(a.full, first)));
                 }
               });
}

void load_state(const kernels::StateTransferArguments& a, StreamRef) {
  transfer(a, [](const CompactPart& part, float* full) { part.load(full); });
}

void store_state(const kernels::StateTransferArguments& a, StreamRef) {
  if (a.state.skips()) return;
  const PhiloxState draw = rounding_draw(a.rounding_key, a.counter->steps + 1, a.array);
  transfer(a, [&](const CompactPart& part, const float* full) { part.store(full, draw); });
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
              .load_state = load_state,
      .store_state = store_state};
  return table;
}

}  // namespace lockstep::backend
