#include <algorithm>

#include "cuda/compact_optimizer.hpp"
#include "cuda/measured_squares.hpp"
#include "cuda/optimizer_table.hpp"
#include "cuda/row_access.hpp"
#include "functional/compact_state.hpp"

namespace lockstep::cuda_kernels {
namespace {

/// How the elements of an array lie in memory. It is looked up at run time, for each array of each
/// tensor: that costs little beside reading them, and kernels for all combinations would be
/// hundreds.
enum class ElementFormat : unsigned { absent, f32, f16, bf16, codes, nonnegative_codes };

/// Beside what every table has: scales, formats of all arrays (4 bits each) and the key of its
/// roundings.
enum {
  scales_pointer = pointers,
  formats_word = scales_pointer + most_optimizer_states,
  key_word,
  words
};
using CompactTable = ChunkTable<words>;
constexpr int format_bits = 4, rounds_bit = arrays * format_bits;

/// Neighbours that a thread works on at once: those whose roundings one Philox block serves.
constexpr int lanes = static_cast<int>(roundings_at_once);
static_assert(warp_size * lanes == state_block);
using Lanes = Pack<float, lanes>;

/// The values of all codes, in shared memory.
struct CodeValues {
  float any[256], nonnegative[256];

  /// By all threads of a block, which must meet before they read.
  __device__ void fill() {
    static_assert(optimizer_threads == 256);
    any[threadIdx.x] = functional::StateCode<false>::decode(threadIdx.x);
    nonnegative[threadIdx.x] = functional::StateCode<true>::decode(threadIdx.x);
  }
};

/// Lanes that exist of an array of T. @param at of the first lane
template <class T>
__device__ Lanes load_lanes(const void* array, std::int64_t at, std::int64_t last) {
  constexpr int width = lanes_of<T> < lanes ? lanes_of<T> : lanes;
  const bool aligned = is_aligned(array);
  Lanes result;
  LOCKSTEP_UNROLL
  for (int part = 0; part < lanes; part += width) {
    const bool wide = aligned && at + part + width <= last;
    const auto loaded = load_row<width>(static_cast<const T*>(array), at + part, last, wide);
    LOCKSTEP_UNROLL
    for (int j = 0; j < width; ++j) result[part + j] = loaded[j];
  }
  return result;
}

template <class T>
__device__ void store_lanes(void* array, std::int64_t at, std::int64_t last, const Lanes& values) {
  constexpr int width = lanes_of<T> < lanes ? lanes_of<T> : lanes;
  const bool aligned = is_aligned(array);
  LOCKSTEP_UNROLL
  for (int part = 0; part < lanes; part += width) {
    const bool wide = aligned && at + part + width <= last;
    Pack<float, width> stored;
    LOCKSTEP_UNROLL
    for (int j = 0; j < width; ++j) stored[j] = values[part + j];
    store_row<width>(static_cast<T*>(array), at + part, last, wide, stored);
  }
}

/// An array and how it lies in memory.
struct CompactArray {
  void* data;
  float* scales;
  ElementFormat format;

  explicit CompactArray(const FlatArray& array);
  /// Of the block's tensor.
  __device__ CompactArray(const CompactTable& table, int tensor, int k)
      : data(table.array[k][tensor]), scales(nullptr) {
    const auto formats = reinterpret_cast<std::uintptr_t>(table.array[formats_word][tensor]);
    format = static_cast<ElementFormat>((formats >> (k * format_bits)) & 0xF);
    if (k < most_optimizer_states)
      scales = static_cast<float*>(table.array[scales_pointer + k][tensor]);
  }

  __device__ bool is_present() const { return format != ElementFormat::absent; }

  __device__ Lanes load(std::int64_t at, std::int64_t last, const CodeValues& values) const {
    switch (format) {
      case ElementFormat::f32: return load_lanes<float>(data, at, last);
      case ElementFormat::f16: return load_lanes<Half>(data, at, last);
      case ElementFormat::bf16: return load_lanes<BFloat16>(data, at, last);
      case ElementFormat::codes: return load_codes(at, last, values.any);
      case ElementFormat::nonnegative_codes: return load_codes(at, last, values.nonnegative);
      case ElementFormat::absent: break;
    }
    return {};
  }
  /// Writes what is not a state: to the nearest, or stochastically for bf16.
  __device__ void store(std::int64_t at, std::int64_t last, const Lanes& x, bool stochastic,
                        const PhiloxState& draw) const {
    switch (format) {
      case ElementFormat::f32: return store_lanes<float>(data, at, last, x);
      case ElementFormat::f16: return store_lanes<Half>(data, at, last, x);
      case ElementFormat::bf16:
        return stochastic ? store_stochastically(at, last, x, draw)
                          : store_lanes<BFloat16>(data, at, last, x);
      default: return;
    }
  }
  /// Writes a state. All threads of the warp come here, for neighbouring lanes that begin with a
  /// block.
  __device__ void store_state(std::int64_t at, std::int64_t last, const Lanes& x,
                              const PhiloxState& draw) const {
    if (format == ElementFormat::codes) return store_codes<false>(at, last, x, draw);
    if (format == ElementFormat::nonnegative_codes) return store_codes<true>(at, last, x, draw);
    store(at, last, x, true, draw);
  }

 private:
  __device__ Lanes load_codes(std::int64_t at, std::int64_t last, const float* values) const {
    Lanes result = {};
    if (at >= last) return result;
    const float scale = scales[at / state_block];
    const auto* const from = static_cast<const std::uint8_t*>(data) + at;
    if (is_aligned(data) && at + lanes <= last) {
      const auto codes = load_vector<lanes>(from);
      LOCKSTEP_UNROLL
      for (int j = 0; j < lanes; ++j) result[j] = values[codes.lane[j]] * scale;
    } else {
      for (int j = 0; at + j < last && j < lanes; ++j) result[j] = values[from[j]] * scale;
    }
    return result;
  }

  template <bool nonnegative>
  __device__ void store_codes(std::int64_t at, std::int64_t last, const Lanes& x,
                              const PhiloxState& draw) const {
    float scale = 0;
    LOCKSTEP_UNROLL
    for (int j = 0; j < lanes; ++j) {
      const float own = at + j < last ? functional::scale_of(x[j]) : 0.0f;
      scale = scale > own ? scale : own;
    }
    scale = reduce_warp(scale, [](float a, float b) { return a > b ? a : b; });
    __syncwarp();  // all have read the former scale: shuffles order no memory
    if (at >= last) return;
    if (at % state_block == 0) scales[at / state_block] = scale;
    const PhiloxBlock bits = draw.block(static_cast<std::uint64_t>(at / lanes));
    Vector<std::uint8_t, lanes> codes;
    LOCKSTEP_UNROLL
    for (int j = 0; j < lanes; ++j)
      codes.lane[j] = functional::StateCode<nonnegative>::encode(
          x[j], scale, functional::chance_of(rounding_bits(bits, j)));
    auto* const to = static_cast<std::uint8_t*>(data) + at;
    if (is_aligned(data) && at + lanes <= last) {
      store_vector<lanes>(to, codes);
    } else {
      for (int j = 0; at + j < last && j < lanes; ++j) to[j] = codes.lane[j];
    }
  }

  __device__ void store_stochastically(std::int64_t at, std::int64_t last, const Lanes& x,
                                       const PhiloxState& draw) const {
    if (at >= last) return;
    const PhiloxBlock bits = draw.block(static_cast<std::uint64_t>(at / lanes));
    Vector<BFloat16, lanes> rounded;
    LOCKSTEP_UNROLL
    for (int j = 0; j < lanes; ++j)
      rounded.lane[j] = functional::round_stochastically(x[j], rounding_bits(bits, j));
    auto* const to = static_cast<BFloat16*>(data) + at;
    if (is_aligned(data) && at + lanes <= last) {
      store_vector<lanes>(to, rounded);
    } else {
      for (int j = 0; at + j < last && j < lanes; ++j) to[j] = rounded.lane[j];
    }
  }
};

/// Blocks of a state that a block of threads works on at once, and their elements.
constexpr std::int64_t state_blocks_at_once = optimizer_threads / warp_size,
                       elements_at_once = state_blocks_at_once * state_block;

/// Calls `visit(at)` with the first of each thread's neighbours in [first, last), a warp to each
/// block of a state. All threads of a warp are called alike. @param stride in blocks of a state
template <class Visit>
__device__ void for_each_lanes(std::int64_t first, std::int64_t last, std::int64_t stride,
                               const Visit& visit) {
  const int warp = static_cast<int>(threadIdx.x) / warp_size, lane = WarpGroup{}.rank();
  for (std::int64_t block = first + warp * state_block; block < last; block += stride * state_block)
    visit(block + lane * lanes);
}

/// As update_kernel of optimizer.cu.
template <class Rule, int... k>
__global__ void __launch_bounds__(optimizer_threads)
    compact_update_kernel(LOCKSTEP_GRID_CONSTANT(CompactTable) table,
                          LOCKSTEP_GRID_CONSTANT(OptimizerArguments<Rule>) arguments) {
  if (arguments.state.skips()) return;
  const int tensor = table.tensor_of(blockIdx.x);
  __shared__ CodeValues values;
  values.fill();
  const auto step = take_step(table, tensor, arguments, true);  // and all values are there

  const CompactArray parameter(table, tensor, parameter_array);
  const CompactArray gradient(table, tensor, gradient_array);
  const CompactArray master(table, tensor, master_array);
  const CompactArray state[] = {CompactArray(table, tensor, k)..., parameter};
  const auto rounding_key = reinterpret_cast<std::uintptr_t>(table.array[key_word][tensor]);
  const bool rounds =
      reinterpret_cast<std::uintptr_t>(table.array[formats_word][tensor]) >> rounds_bit & 1;
  const auto draw = [&](int array) { return rounding_draw(rounding_key, step.number, array); };
  const CompactArray& updated = master.is_present() ? master : parameter;

  const std::int64_t last = table.last(tensor, blockIdx.x);
  for_each_lanes(table.first(tensor, blockIdx.x), last, state_blocks_at_once, [&](std::int64_t at) {
    Lanes p = updated.load(at, last, values);
    const Lanes g = gradient.load(at, last, values);
    [[maybe_unused]] Lanes s[] = {state[k].load(at, last, values)..., Lanes{}};
    LOCKSTEP_UNROLL
    for (int j = 0; j < lanes; ++j)
      functional::update<float>(step.coefficients, p[j], g[j], s[k][j]...);
    parameter.store(at, last, p, rounds, draw(0));
    if (master.is_present()) master.store(at, last, p, false, {});
    (state[k].store_state(at, last, s[k], draw(k + 1)), ...);
  });
}

/// As measure_kernel of optimizer.cu.
template <class Rule, int... k>
__global__ void __launch_bounds__(optimizer_threads)
    compact_measure_kernel(LOCKSTEP_GRID_CONSTANT(CompactTable) table,
                           LOCKSTEP_GRID_CONSTANT(OptimizerArguments<Rule>) arguments,
                           double* squares, double* partials) {
  if (arguments.state.skips()) return;
  const int tensor = table.tensor_of(blockIdx.x);
  __shared__ CodeValues values;
  values.fill();
  const auto c = take_step(table, tensor, arguments, false).coefficients;  // and all values
  const CompactArray parameter(table, tensor, parameter_array);
  const CompactArray gradient(table, tensor, gradient_array);
  const CompactArray master(table, tensor, master_array);
  const CompactArray state[] = {CompactArray(table, tensor, k)...};
  const CompactArray& updated = master.is_present() ? master : parameter;
  const std::int64_t last = table.last(tensor, blockIdx.x);
  double sums[2] = {};
  for_each_lanes(table.first(tensor, blockIdx.x), last, state_blocks_at_once, [&](std::int64_t at) {
    const Lanes p = updated.load(at, last, values), g = gradient.load(at, last, values);
    const Lanes s[] = {state[k].load(at, last, values)...};
    LOCKSTEP_UNROLL
    for (int j = 0; j < lanes; ++j) {
      if (at + j >= last) break;
      const auto measured = functional::measure<float>(c, p[j], g[j], s[k][j]...);
      add_squares(sums, measured);
    }
  });
  add_up(table, tensor, sums, squares, partials);
}

__global__ void __launch_bounds__(optimizer_threads)
    load_state_kernel(CompactArray kept, float* full, std::int64_t count) {
  __shared__ CodeValues values;
  values.fill();
  __syncthreads();
  for_each_lanes(
      blockIdx.x * elements_at_once, count, gridDim.x * state_blocks_at_once,
      [&](std::int64_t at) { store_lanes<float>(full, at, count, kept.load(at, count, values)); });
}

__global__ void __launch_bounds__(optimizer_threads)
    store_state_kernel(CompactArray kept, const float* full, std::int64_t count,
                       kernels::StepState state, const StepCounter* counter,
                       std::uint32_t rounding_key, int array) {
  if (state.skips()) return;
  const PhiloxState draw = rounding_draw(rounding_key, counter->steps + 1, array);
  for_each_lanes(blockIdx.x * elements_at_once, count, gridDim.x * state_blocks_at_once,
                 [&](std::int64_t at) {
                   kept.store_state(at, count, load_lanes<float>(full, at, count), draw);
                 });
}

ElementFormat format_of(const FlatArray& array) {
  if (!array) return ElementFormat::absent;
  switch (array.dtype) {
    case DType::f32: return ElementFormat::f32;
    case DType::f16: return ElementFormat::f16;
    case DType::bf16: return ElementFormat::bf16;
    case DType::u8:
      if (array.scales)
        return array.nonnegative ? ElementFormat::nonnegative_codes : ElementFormat::codes;
      [[fallthrough]];
    default:
      throw Unsupported(detail::concat(
          "optimizer: ", array.dtype, " beside states in few bits; f32, bf16 and f16 are offered"));
  }
}

CompactArray::CompactArray(const FlatArray& array)
    : data(array.data), scales(array.scales), format(format_of(array)) {}

/// @throws InvalidArgument or Unsupported if an array does not fit its parameter.
void check_arrays(const OptimizerTensors& tensors, int states) {
  for (int k = 0; k < arrays; ++k) {
    const FlatArray& array = array_of(tensors, k);
    const ElementFormat format = format_of(array);
    const bool is_state = k < most_optimizer_states;
    LOCKSTEP_CHECK(array || k == master_array || (is_state && k >= states), InvalidArgument,
                   "optimizer: ", is_state ? "a state" : "an array", " is absent");
    if (!array) continue;
    LOCKSTEP_CHECK(array.count == tensors.parameter.count, InvalidArgument,
                   "optimizer: an array of ", array.count, " elements beside a parameter of ",
                   tensors.parameter.count);
    LOCKSTEP_CHECK(is_state ? format != ElementFormat::f16
                            : format == ElementFormat::f32 ||
                                  (k != master_array &&
                                   (format == ElementFormat::f16 || format == ElementFormat::bf16)),
                   Unsupported, "optimizer: ", array.dtype, is_state ? " states" : " arrays",
                   " are not offered here");
  }
  LOCKSTEP_CHECK(tensors.gradient.dtype == tensors.parameter.dtype, Unsupported, "optimizer: a ",
                 tensors.gradient.dtype, " gradient of a ", tensors.parameter.dtype,
                 " parameter on device cuda");
  LOCKSTEP_CHECK(
      !tensors.rounds_stochastically || (tensors.parameter.dtype == DType::bf16 && !tensors.master),
      Unsupported, "optimizer: stochastic rounding of a ", tensors.parameter.dtype,
      " parameter; it is offered for bf16 without master copies");
}

void* word(std::uintptr_t value) { return reinterpret_cast<void*>(value); }

void* word_of(const OptimizerTensors& tensors, int k) {
  if (k == key_word) return word(tensors.rounding_key);
  if (k == formats_word) {
    std::uintptr_t formats = tensors.rounds_stochastically ? std::uintptr_t{1} << rounds_bit : 0;
    for (int array = 0; array < arrays; ++array)
      formats |= static_cast<std::uintptr_t>(format_of(array_of(tensors, array)))
                 << (array * format_bits);
    return word(formats);
  }
  return k < pointers ? pointer_of(tensors, k) : array_of(tensors, k - scales_pointer).scales;
}

/// Calls `launch_table.operator()<k...>(table, blocks)` for all tensors; k are the rule's states.
template <class Rule, class Launch>
void for_each_compact_table(const OptimizerArguments<Rule>& arguments, const Launch& launch_table) {
  const auto list = arguments.tensors;
  for (const OptimizerTensors& each : list) check_arrays(each, arguments.rule.states());
  with_states(
      arguments.rule, [&]<int... k>() {
        for_each_table<words>(
            list.size(), [&](std::size_t i, int n) { return word_of(list[i], n); },
            [&](std::size_t i) { return list[i].parameter.count; },
            [&](const CompactTable& table, unsigned blocks) {
              launch_table.template operator()<k...>(table, blocks);
            });
      });
}

template <class Rule>
void update(const OptimizerArguments<Rule>& arguments, StreamRef stream) {
  static_assert(sizeof(CompactTable) + sizeof arguments <= most_argument_bytes);
  auto own = arguments;
  own.tensors = {};  // lies on the host
  for_each_compact_table(
      arguments, [&]<int... k>(const CompactTable& table, unsigned blocks) {
        launch(stream, blocks, optimizer_threads, 0, compact_update_kernel<Rule, k...>, table, own);
      });
}

template <class Rule>
void measure(const OptimizerArguments<Rule>& arguments, void* scratch, StreamRef stream) {
  auto own = arguments;
  own.tensors = {};
  own.squares = nullptr;  // not known yet
  for_each_compact_table(
      arguments, [&]<int... k>(const CompactTable& table, unsigned blocks) {
        launch(stream, blocks, optimizer_threads, 0, compact_measure_kernel<Rule, k...>, table, own,
               arguments.squares, static_cast<double*>(scratch));
      });
}

/// @throws InvalidArgument unless one is a state in few bits and the other has its elements in f32.
void check_transfer(const kernels::StateTransferArguments& a) {
  LOCKSTEP_CHECK(a.full.dtype == DType::f32 && a.full.count == a.kept.count &&
                     a.kept.dtype == (a.kept.scales ? DType::u8 : DType::bf16),
                 InvalidArgument, "optimizer: ", a.kept.count, " elements in ", a.kept.dtype,
                 " of a state of ", a.full.count, " in ", a.full.dtype);
}

unsigned transfer_blocks(std::int64_t elements) {
  constexpr std::int64_t most = 1 << 20;  // then each works on more
  return static_cast<unsigned>(
      std::min(most, (elements + elements_at_once - 1) / elements_at_once));
}

}  // namespace

#define LOCKSTEP_OPTIMIZER(name, Rule)                                                        \
  void compact_update(const kernels::OptimizerArguments<Rule>& arguments, StreamRef stream) { \
    update(arguments, stream);                                                                \
  }
LOCKSTEP_OPTIMIZERS(LOCKSTEP_OPTIMIZER)
#undef LOCKSTEP_OPTIMIZER
#define LOCKSTEP_OPTIMIZER(name, Rule)                                                    \
  void compact_measure(const kernels::OptimizerArguments<Rule>& arguments, void* scratch, \
                       StreamRef stream) {                                                \
    measure(arguments, scratch, stream);                                                  \
  }
LOCKSTEP_LAYERWISE_OPTIMIZERS(LOCKSTEP_OPTIMIZER)
#undef LOCKSTEP_OPTIMIZER

void load_state(const kernels::StateTransferArguments& a, StreamRef stream) {
  check_transfer(a);
  if (a.full.count == 0) return;
  launch(stream, transfer_blocks(a.full.count), optimizer_threads, 0, load_state_kernel,
         CompactArray(a.kept), static_cast<float*>(a.full.data), a.full.count);
}

void store_state(const kernels::StateTransferArguments& a, StreamRef stream) {
  check_transfer(a);
  if (a.full.count == 0) return;
  launch(stream, transfer_blocks(a.full.count), optimizer_threads, 0, store_state_kernel,
         CompactArray(a.kept), static_cast<const float*>(a.full.data), a.full.count, a.state,
         a.counter, a.rounding_key, a.array);
}

}  // namespace lockstep::cuda_kernels
