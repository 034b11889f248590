#include <array>
#include <utility>

#include "cpu/loops/random_words.hpp"
#include "cpu/optimizer_loops.hpp"

namespace lockstep::cpu_kernels::LOCKSTEP_ISA {
namespace {

template <class Coefficients, class T, class... State>
void update_loop(const Coefficients& given, std::int64_t n, T* parameter, const T* gradient,
                 State*... state) {
  const Coefficients c = given;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    // On copies, to which no array can point.
    [&](T p, State... s) {
      functional::update(c, p, gradient[i], s...);
      parameter[i] = p;
      ((state[i] = s), ...);
    }(parameter[i], state[i]...);
  }
}

/// The loop of a rule with sizeof...(k) states; k are 0, 1 ...
template <class Rule, class T, int... k>
void update_arrays(void* const* arrays, std::int64_t n,
                   const typename Rule::Coefficients& coefficients) {
  update_loop(coefficients, n, static_cast<T*>(arrays[0]), static_cast<const T*>(arrays[1]),
              static_cast<T*>(arrays[2 + k])...);
}

template <class Rule, class T, int states>
void fill_loops(OptimizerLoops<Rule>& loops) {
  [&]<int... k>(std::integer_sequence<int, k...>) {
    loops.loop[static_cast<std::size_t>(accumulate_tag<T>)][states] = update_arrays<Rule, T, k...>;
  }
  (std::make_integer_sequence<int, states>());
  if constexpr (states < Rule::most_states) fill_loops<Rule, T, states + 1>(loops);
}

/// Neighbours go to sums of their own, as many as make whole vectors.
constexpr std::int64_t sums = 16;

template <class Coefficients, class T, class... State>
void measure_loop(const Coefficients& given, std::int64_t n, double* squares, const T* parameter,
                  const T* gradient, const State*... state) {
  const Coefficients c = given;
  double parameters[sums] = {}, updates[sums] = {};
  const auto measure_at = [&](std::int64_t i, std::int64_t sum) {
    const auto measured = functional::measure(c, parameter[i], gradient[i], state[i]...);
    parameters[sum] += double(measured.parameter) * double(measured.parameter);
    updates[sum] += double(measured.update) * double(measured.update);
  };
  std::int64_t i = 0;
  for (; i + sums <= n; i += sums) {
#pragma GCC ivdep
    for (std::int64_t j = 0; j < sums; ++j) measure_at(i + j, j);
  }
  for (std::int64_t j = 0; i + j < n; ++j) measure_at(i + j, j);
  for (std::int64_t j = 0; j < sums; ++j) {
    squares[0] += parameters[j];
    squares[1] += updates[j];
  }
}

/// The loop of a rule by layer, which has one number of states; k are 0, 1 ...
template <class Rule, class T, int... k>
void measure_arrays(void* const* arrays, std::int64_t n,
                    const typename Rule::Coefficients& coefficients, double* squares) {
  measure_loop(coefficients, n, squares, static_cast<const T*>(arrays[0]),
               static_cast<const T*>(arrays[1]), static_cast<const T*>(arrays[2 + k])...);
}

template <class Rule, class T>
void fill_measure(MeasureLoop<Rule>* loops) {
  static_assert(Rule::least_states == Rule::most_states);
  [&]<int... k>(std::integer_sequence<int, k...>) {
    loops[static_cast<std::size_t>(accumulate_tag<T>)] = measure_arrays<Rule, T, k...>;
  }
  (std::make_integer_sequence<int, Rule::most_states>());
}

/// The values of all codes.
template <bool nonnegative>
constexpr std::array<float, 256> code_values() {
  std::array<float, 256> values{};
  for (unsigned code = 0; code < values.size(); ++code)
    values[code] = functional::StateCode<nonnegative>::decode(code);
  return values;
}

void load_codes(float* to, const std::uint8_t* codes, const float* scales, std::int64_t n,
                bool nonnegative) {
  static constexpr auto any = code_values<false>(), positive = code_values<true>();
  const float* const values = (nonnegative ? positive : any).data();
  for (std::int64_t i = 0; i < n; ++i) to[i] = values[codes[i]] * scales[i / state_block];
}

/// 16 random bits for each of 256 elements, of which the first is a multiple of 8.
constexpr int roundings = 256;
void draw_roundings(std::uint16_t* bits, const PhiloxState& draw, std::int64_t first) {
  std::uint32_t words[roundings / 2];
  random_words<roundings / 2>(words, draw, first / 2);
  for (int i = 0; i < roundings / 2; ++i) {
    bits[2 * i] = static_cast<std::uint16_t>(words[i]);
    bits[2 * i + 1] = static_cast<std::uint16_t>(words[i] >> 16);
  }
}

float largest_scale(const float* from, std::int64_t n) {
  constexpr std::int64_t lanes = 16;
  float largest[lanes] = {};
  const auto take = [&](std::int64_t i, std::int64_t lane) {
    const float scale = functional::scale_of(from[i]);
    largest[lane] = largest[lane] > scale ? largest[lane] : scale;
  };
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    for (std::int64_t j = 0; j < lanes; ++j) take(i + j, j);
  for (; i < n; ++i) take(i, 0);
  float scale = 0;
  for (const float each : largest) scale = scale > each ? scale : each;
  return scale;
}

template <bool nonnegative>
void store_block(std::uint8_t* codes, float scale, const float* from, std::int64_t n,
                 const std::uint16_t* bits) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i)
    codes[i] =
        functional::StateCode<nonnegative>::encode(from[i], scale, functional::chance_of(bits[i]));
}

void store_codes(std::uint8_t* codes, float* scales, const float* from, std::int64_t n,
                 bool nonnegative, const PhiloxState& draw, std::int64_t first) {
  static_assert(roundings == state_block);
  std::uint16_t bits[roundings];
  for (std::int64_t i = 0; i < n; i += state_block) {
    const std::int64_t count = n - i < state_block ? n - i : state_block;
    const float scale = scales[i / state_block] = largest_scale(from + i, count);
    draw_roundings(bits, draw, first + i);
    (nonnegative ? store_block<true> : store_block<false>)(codes + i, scale, from + i, count, bits);
  }
}

void store_bf16(BFloat16* to, const float* from, std::int64_t n, const PhiloxState& draw,
                std::int64_t first) {
  std::uint16_t bits[roundings];
  for (std::int64_t i = 0; i < n; i += roundings) {
    const std::int64_t count = n - i < roundings ? n - i : roundings;
    draw_roundings(bits, draw, first + i);
#pragma GCC ivdep
    for (std::int64_t j = 0; j < count; ++j)
      to[i + j] = functional::round_stochastically(from[i + j], bits[j]);
  }
}

}  // namespace

void fill_optimizer(RowLoops& loops) {
  static const OptimizerTable filled = [] {
    OptimizerTable table;
    table.compact = {load_codes, store_codes, store_bf16};
#define LOCKSTEP_OPTIMIZER(name, Rule)                     \
  fill_loops<Rule, float, Rule::least_states>(table.name); \
  fill_loops<Rule, double, Rule::least_states>(table.name);
    LOCKSTEP_OPTIMIZERS(LOCKSTEP_OPTIMIZER)
#undef LOCKSTEP_OPTIMIZER
#define LOCKSTEP_OPTIMIZER(name, Rule)             \
  fill_measure<Rule, float>(table.name##_measure); \
  fill_measure<Rule, double>(table.name##_measure);
    LOCKSTEP_LAYERWISE_OPTIMIZERS(LOCKSTEP_OPTIMIZER)
#undef LOCKSTEP_OPTIMIZER
    return table;
  }();
  loops.optimizers = &filled;
}

}  // namespace lockstep::cpu_kernels::LOCKSTEP_ISA
