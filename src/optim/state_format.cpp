#include "optim/state_format.hpp"

#include <algorithm>

#include "functional/compact_state.hpp"
#include "lockstep/core/parallel.hpp"
#include "lockstep/tensor/factories.hpp"

namespace lockstep::optim {
namespace {

/// Where 8 bits begin: small tensors, norms and biases, are most sensitive and save nothing.
constexpr std::int64_t least_elements_in_8bit = 4096;

std::int64_t blocks_of(std::int64_t elements) { return (elements + state_block - 1) / state_block; }

/// Calls `visit(first, last, block)` for all blocks of elements.
template <class Visit>
void for_each_block(std::int64_t elements, const Visit& visit) {
  parallel_for(blocks_of(elements), 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block)
      visit(block * state_block, std::min(elements, (block + 1) * state_block), block);
  });
}

template <bool nonnegative>
void encode(const Tensor& from, const Tensor& codes, const Tensor& scales) {
  const auto* const x = static_cast<const float*>(from.data_ptr());
  auto* const to = static_cast<std::uint8_t*>(codes.data_ptr());
  auto* const scale = static_cast<float*>(scales.data_ptr());
  for_each_block(from.numel(), [&](std::int64_t first, std::int64_t last, std::int64_t block) {
    float largest = 0;
    for (std::int64_t i = first; i < last; ++i)
      largest = std::max(largest, functional::scale_of(x[i]));
    scale[block] = largest;
    for (std::int64_t i = first; i < last; ++i)
      to[i] = functional::StateCode<nonnegative>::encode(x[i], largest, 0.5f);
  });
}

template <bool nonnegative>
void decode(const Tensor& codes, const Tensor& scales, const Tensor& to) {
  float values[256];
  for (unsigned code = 0; code < 256; ++code)
    values[code] = functional::StateCode<nonnegative>::decode(code);
  const auto* const from = static_cast<const std::uint8_t*>(codes.data_ptr());
  const auto* const scale = static_cast<const float*>(scales.data_ptr());
  auto* const x = static_cast<float*>(to.data_ptr());
  for_each_block(to.numel(), [&](std::int64_t first, std::int64_t last, std::int64_t block) {
    for (std::int64_t i = first; i < last; ++i) x[i] = values[from[i]] * scale[block];
  });
}

}  // namespace

StateFormat format_for(StateFormat wanted, std::int64_t elements) {
  const bool is_small = elements < least_elements_in_8bit;
  return wanted == StateFormat::blockwise_8bit && is_small ? StateFormat::full : wanted;
}

DType stored_dtype(StateFormat format, DType parameter) {
  switch (format) {
    case StateFormat::bf16: return DType::bf16;
    case StateFormat::blockwise_8bit: return DType::u8;
    case StateFormat::full: break;
  }
  return state_dtype(parameter);
}

StoredState zero_state(StateFormat format, const Shape& shape, DType dtype, Device device) {
  StoredState state{
      .values = zeros(shape, {.dtype = stored_dtype(format, dtype), .device = device}),
      .scales = {}};
  if (format == StateFormat::blockwise_8bit)
    state.scales = zeros({blocks_of(state.values.numel())}, {.device = device});
  return state;
}

StoredState stored(const Tensor& full, std::string_view name, StateFormat format) {
  if (format == StateFormat::full) return {.values = full, .scales = {}};
  if (format == StateFormat::bf16) return {.values = full.to(DType::bf16), .scales = {}};
  const StoredState state = zero_state(format, full.shape(), full.dtype(), cpu);
  (is_nonnegative(name) ? encode<true> : encode<false>)(full.to(cpu).contiguous(), state.values,
                                                        state.scales);
  return {.values = state.values.to(full.device()), .scales = state.scales.to(full.device())};
}

Tensor restored(const StoredState& state, std::string_view name) {
  const Device device = state.values.device();
  if (state.values.dtype() == DType::bf16) return state.values.to(DType::f32);
  if (!state.scales.defined()) return state.values;
  const Tensor full = empty(state.values.shape());
  (is_nonnegative(name) ? decode<true> : decode<false>)(state.values.to(cpu), state.scales.to(cpu),
                                                        full);
  return full.to(device);
}

bool is_nonnegative(std::string_view name) {
  constexpr std::string_view names[] = {"exp_avg_sq", "max_exp_avg_sq", "exp_inf", "sum",
                                        "square_avg", "row_var",        "col_var", "variance"};
  return std::ranges::find(names, name) != std::end(names);
}

}  // namespace lockstep::optim
