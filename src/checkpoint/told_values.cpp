#include "checkpoint/told_values.hpp"

#include <cstdint>
#include <cstdio>
#include <vector>

#include "backend/backend.hpp"
#include "lockstep/core/array_view.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/runtime/stream.hpp"

namespace lockstep::checkpoint {

std::string told_values(std::span<const Tensor> tensors) {
  std::vector<Tensor> kept;
  std::vector<ArrayView> views;
  for (const Tensor& each : tensors) {
    if (!each.device().is_cpu()) continue;
    kept.push_back(each.detach().contiguous());
    views.push_back(kept.back().view());
  }
  if (views.empty()) return {};
  std::vector<std::int64_t> sums(views.size());
  const auto count = static_cast<std::int64_t>(sums.size());
  backend::of(cpu).multi_tensor.fingerprint(
      {.out = {sums.data(), DType::i64, {count}, {1}}, .arrays = views}, current_stream(cpu));
  std::uint64_t all = 0;
  for (const std::int64_t sum : sums)
    all = all * 0x9E3779B97F4A7C15u + static_cast<std::uint64_t>(sum);
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(all));
  return detail::concat(words_of_values, digits);
}

}  // namespace lockstep::checkpoint
