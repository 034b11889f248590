#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <ostream>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "parallel/replicas.hpp"

/// @file
/// Random models, and random ways to train them.

namespace lockstep::parallel::testing {

using Calls = std::vector<std::size_t>;  // of layers, which may come twice, or not at all

/// What is trained, and how: the same on all ranks for a seed.
struct Plan {
  /// @param of_ranks so many; 0: some.
  explicit Plan(std::uint64_t from, int of_ranks = 0) : seed(from), random(from) {
    layers = number(1, 5);
    for (std::size_t i = 0; i < layers; ++i) {
      dtypes.push_back(chance(10) ? DType::bf16 : chance(5) ? DType::f32 : DType::f64);
      has_bias.push_back(!chance(3));
      is_frozen.push_back(i > 0 && chance(5));
      is_computed_again.push_back(chance(4));
    }
    ranks = of_ranks > 0 ? of_ranks : static_cast<int>(number(1, 4));
    steps = static_cast<int>(number(2, 4));
    micro_batches = static_cast<int>(number(1, 3));
    constexpr std::size_t sizes[] = {1, 200, 2000, std::size_t{25} << 20};
    use = static_cast<Use>(number(0, 2));
    options = {.bucket_bytes = sizes[number(0, 3)],
               .first_bucket_bytes = sizes[number(0, 3)],
               .find_unused_parameters = use == Use::changing,
               .static_graph = use == Use::fixed,
               .zero_stage = static_cast<int>(number(0, 3))};
    if (options.zero_stage == 3) use_all();  // ranks gather together what they use
    is_weighted = chance(2);
    some_lack_data = is_weighted && options.zero_stage < 3 && chance(2);
    is_adaptive = chance(2);
    clips = chance(2);
    scales = !some_lack_data && chance(3);
    is_captured = use != Use::changing && !some_lack_data && chance(3);
    if (use != Use::changing && options.zero_stage == 0 && chance(2)) {
      options.bucket_plan = BucketPlanning::measured;
      steps += 2;  // those after the plan
    }
    calls_modules = chance(2);
    evaluates = chance(3);
    looks = !is_captured && chance(4);
    options.register_buckets = chance(3);  // which does nothing but over NCCL
    for (std::size_t i = 0; i < layers; ++i) {
      weights.push_back(i);
      const std::size_t before = weights[number(0, i)];
      if (!chance(3) || dtypes[i] != dtypes[before]) continue;
      weights[i] = before;
      is_frozen[i] = is_frozen[before];
    }
    const bool has_one_scale = !is_weighted || (ranks > 1 && micro_batches == 1 && !some_lack_data);
    if (use == Use::all && has_one_scale && is_f64() && chance(2))
      normalized = number(0, layers - 1);
  }

  /// With options that may not go together, or not with what the ranks do.
  static Plan with_any_options(std::uint64_t from) {
    Plan plan(from);
    plan.steps += 2;
    plan.options.find_unused_parameters =
        plan.use == Use::changing ? !plan.chance(6) : plan.chance(4);
    plan.options.static_graph = plan.use == Use::fixed ? !plan.chance(6) : plan.chance(4);
    if (plan.chance(2)) plan.options.zero_stage = 0;
    plan.options.bucket_plan = plan.chance(4) ? BucketPlanning::measured : BucketPlanning::pytorch;
    plan.some_lack_data = plan.chance(5);
    plan.scales = plan.chance(4);
    plan.is_captured = plan.use != Use::changing && plan.chance(3);
    plan.hook = plan.chance(3) ? static_cast<Hook>(plan.number(1, 4)) : Hook::none;
    plan.compressed_to = plan.chance(2) ? DType::f16 : DType::bf16;
    plan.low_rank_from = plan.chance(4) ? 1000 : 2;
    if (plan.hook != Hook::none && !plan.chance(4)) plan.options.zero_stage = 0;
    if (plan.use == Use::all && plan.is_f64() && plan.ranks > 1 && plan.chance(4))
      plan.normalized = 0;
    plan.async = plan.chance(6) ? static_cast<Async>(plan.number(1, 2)) : Async::none;
    plan.checks_divergence = plan.chance(4);
    plan.one_skips = plan.chance(12);
    if (plan.chance(5)) {
      plan.options.reduction = GradientReduction::reproducible;
      plan.options.micro_batches = plan.ranks * plan.micro_batches;
      if (!plan.chance(4)) plan.options.zero_stage = 0;
    }
    return plan;
  }
  /// False of ways to train that are meant to differ from one process.
  bool is_exact() const {
    if (async == Async::local)
      return use == Use::all && !is_adaptive && !clips && !is_weighted && !scales;
    return async == Async::none && hook != Hook::rounding && hook != Hook::delayed;
  }

  /// Backwards over which gradients are averaged: other ones than the last of a rank add up.
  int averaged_count() const {
    return options.reduction == GradientReduction::reproducible ? ranks * micro_batches : ranks;
  }
  /// What parameters may be off by, of their values and at all: by what their dtypes round.
  std::pair<double, double> tolerance() const {
    if (std::ranges::count(dtypes, DType::bf16) > 0) return {0.05, 0.02};
    if (std::ranges::count(dtypes, DType::f32) > 0) return {1e-3, 1e-4};
    return {1e-8, 1e-10};
  }
  bool is_f64() const { return std::ranges::count(dtypes, DType::f64) == std::ssize(dtypes); }
  void use_all() {
    use = Use::all;
    options.find_unused_parameters = options.static_graph = false;
  }
  std::size_t number(std::size_t least, std::size_t most) {
    return std::uniform_int_distribution<std::size_t>(least, most)(random);
  }
  bool chance(std::size_t of) { return number(1, of) == 1; }

  /// Layers that a rank's forward calls; by its own way where parameters may be unused.
  Calls calls(int rank, int step) const {
    Calls called;
    if (use == Use::all)
      for (std::size_t i = 0; i < layers; ++i) called.push_back(i);
    const auto of = static_cast<std::uint64_t>(rank + 1) * 1000;
    Plan own(*this, seed + (use == Use::all ? 0 : of) +
                        (use == Use::changing ? static_cast<std::uint64_t>(step) : 0));
    for (std::size_t more = own.number(1, 3); more > 0; --more)
      called.push_back(own.number(0, layers - 1));
    called.push_back(0);  // which is trained
    return called;
  }
  /// Rows of a rank's batch; none where its data has ended.
  std::int64_t rows(int rank, int step) const {
    if (!is_weighted) return 2;
    if (some_lack_data && rank > 0 && (rank + step) % 2 == 0) return 0;
    return 1 + (rank + step) % 3;
  }
  Batch batch(int rank, int step, int micro) const {
    Generator generator(seed * 7919 + static_cast<std::uint64_t>(100 * step + 10 * rank + micro));
    const TensorOptions f64{.dtype = DType::f64};
    const std::int64_t count = rows(rank, step);
    const Tensor x = randn({count, width}, f64, generator);
    return {x.to(device_of_rank), randn({count, width}, f64, generator).to(device_of_rank)};
  }

  /// The batches of all ranks.
  Batch whole_batch(int step, int micro) const {
    std::vector<Tensor> x, target;
    for (int rank = 0; rank < ranks; ++rank) {
      const Batch own = batch(rank, step, micro);
      x.push_back(own.x);
      target.push_back(own.target);
    }
    return {cat(x, 0), cat(target, 0)};
  }

  enum class Use : unsigned char { all, fixed, changing };
  enum class Hook : unsigned char { none, averaging, power_sgd, rounding, delayed };
  enum class Async : unsigned char { none, local, diloco };
  static constexpr std::int64_t width = 5;
  std::uint64_t seed;
  std::mt19937_64 random;
  std::size_t layers;
  std::vector<DType> dtypes;
  std::vector<bool> has_bias, is_frozen, is_computed_again;
  std::vector<std::size_t> weights;       // of which layer each one's is: its own, or one before it
  std::optional<std::size_t> normalized;  // a layer with SyncBatchNorm behind it
  int ranks, steps, micro_batches;
  Use use;
  DistributedDataParallelOptions options;
  bool is_weighted, some_lack_data, is_adaptive, clips, scales, is_captured;
  bool calls_modules;  // with their hooks
  bool evaluates;      // the replica, between steps
  bool looks;          // at all parameters, between forward and backward
  Hook hook = Hook::none;
  DType compressed_to = DType::bf16;
  std::int64_t low_rank_from = 1000;  // backwards of PowerSGD that only average
  Async async = Async::none;
  bool checks_divergence = false, one_skips = false;

 private:
  Plan(const Plan& other, std::uint64_t from) : Plan(other) { random.seed(from); }
};

inline std::ostream& operator<<(std::ostream& out, const Plan& plan) {
  return out << "seed " << plan.seed << ": " << plan.layers << " layers, " << plan.ranks
             << " ranks, " << plan.micro_batches << " micro-batches, buckets of "
             << plan.options.bucket_bytes << ", use " << static_cast<int>(plan.use) << ", zero "
             << plan.options.zero_stage << ", plan " << static_cast<int>(plan.options.bucket_plan)
             << ", weighted " << plan.is_weighted << ", without data " << plan.some_lack_data
             << ", adaptive " << plan.is_adaptive << ", clips " << plan.clips << ", scales "
             << plan.scales << ", captured " << plan.is_captured << ", finds unused "
             << plan.options.find_unused_parameters << ", static " << plan.options.static_graph
             << ", hook " << static_cast<int>(plan.hook) << " in " << plan.compressed_to << " from "
             << plan.low_rank_from << ", async " << static_cast<int>(plan.async) << ", checks "
             << plan.checks_divergence << ", one skips " << plan.one_skips << ", reproducible "
             << plan.options.micro_batches << ", calls modules " << plan.calls_modules
             << ", evaluates " << plan.evaluates << ", looks " << plan.looks << ", registers "
             << plan.options.register_buckets << ", normalized "
             << (plan.normalized ? std::to_string(*plan.normalized) : "none") << ", dtypes "
             << ::testing::PrintToString(plan.dtypes) << ", weights "
             << ::testing::PrintToString(plan.weights);
}

}  // namespace lockstep::parallel::testing
