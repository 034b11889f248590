#include "support/compression.hpp"

#include <algorithm>
#include <charconv>
#include <string_view>

#include <lockstep/parallel/power_sgd.hpp>

namespace examples {
namespace {

constexpr std::string_view power_sgd = "powersgd:";

/// The rank in "powersgd:4", or 0.
std::int64_t rank_of(std::string_view compress) {
  std::int64_t rank = 0;
  if (!compress.starts_with(power_sgd)) return 0;
  compress.remove_prefix(power_sgd.size());
  const auto [end, error] =
      std::from_chars(compress.data(), compress.data() + compress.size(), rank);
  return error == std::errc{} && end == compress.data() + compress.size() ? rank : 0;
}

std::string fault_of(const std::string& compress) {
  if (compress == "none" || compress == "bf16" || compress == "fp16" || rank_of(compress) > 0)
    return {};
  return compress + " is none of none, bf16, fp16 and powersgd:RANK with a rank from 1 on";
}

}  // namespace

void add_compress_option(CLI::App& app, std::string& compress) {
  app.add_option("--compress", compress,
                 "How gradients travel between ranks: none, bf16, fp16 or powersgd:RANK")
      ->check(CLI::Validator(fault_of, "", "compression"));
}

std::shared_ptr<lockstep::parallel::BucketReduction> comm_hook(const std::string& compress,
                                                               std::int64_t steps) {
  using lockstep::DType;
  if (const std::int64_t rank = rank_of(compress); rank > 0)
    return std::make_shared<lockstep::parallel::PowerSgd>(lockstep::parallel::PowerSgdOptions{
        .matrix_approximation_rank = rank,
        .start_iteration = std::max<std::int64_t>(2, steps / 10)});
  if (compress == "none") return nullptr;
  return lockstep::parallel::compress_buckets(compress == "bf16" ? DType::bf16 : DType::f16);
}

}  // namespace examples
