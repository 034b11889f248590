#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/autograd/leaf.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/parallel/bucket_plan.hpp"
#include "lockstep/parallel/shard_range.hpp"
#include "lockstep/tensor/named_tensors.hpp"
#include "lockstep/tensor/tensor.hpp"

/// @file
/// Parameters that ranks share out for their updates: ZeRO (Rajbhandari, Rasley, Ruwase and He
/// 2020).

namespace lockstep {
class StepRecording;
}

namespace lockstep::parallel {

class GatherGate;
class GatheredParameters;

/// The parameters of a reducer's buckets, and of each the *shard* that this rank's optimizer
/// updates. Every bucket's parameters lie in one array, as their gradients do, of which each rank
/// has an equal part: a shard is what lies in it of a parameter, all of it, some, or nothing. So
/// nothing need be divisible, and what is filled up is a bucket's end, to 64 bytes a rank (on
/// a GPU 256).
///
/// Shards are leaves that share memory with their parameters. Their gradients are this rank's part
/// of the averages. Behind an optimizer's update of them all-gathers of the buckets that it changed
/// begin, in the order in which a forward wants them; whoever uses a parameter next, or a view of
/// it, waits for that of its bucket (MemoryGate), and sees the values of all ranks. In a captured
/// step they are waited for at once. Writes to each parameter are counted apart, and a write to a
/// shard is one to its parameter.
///
/// Parameters that do not stay whole have a shard each, and memory only while they are used: see
/// `DistributedDataParallelOptions::zero_stage`.
///
/// One thread at a time; all ranks must make the same calls.
class ParameterShards final : private autograd::GradientSink {
 public:
  /// How the gather of a bucket names itself to the other ranks.
  using Identify = std::function<comm::CollectiveId(std::size_t bucket)>;

  /// Moves the values of all parameters to arrays of the buckets, or this rank's part of these.
  /// @param parameters leaves, and names. @param averages this rank's part of each bucket.
  /// @param updates hears of the shards' updates, as of the parameters'.
  /// @param in_backward null: parameters stay whole. Else they are gathered when they are used, and
  /// this tells whether a backward runs that does.
  ParameterShards(NamedTensors parameters, CommunicatorPtr group, std::span<const Bucket> plan,
                  std::vector<Tensor> averages, autograd::GradientSink& updates, Identify identify,
                  std::function<bool()> in_backward = {});
  ParameterShards(const ParameterShards&) = delete;
  ParameterShards& operator=(const ParameterShards&) = delete;
  /// The shards have no gradients any more.
  ~ParameterShards();

  /// For each parameter its shard, under the same name: of shape [n, 1, ...] with as many
  /// dimensions (at least one), n being the number of elements, which may be 0 on this rank.
  const NamedTensors& shards() const noexcept { return shards_; }

  /// The tensors of a state dict, of which those that hold a value for each element of a shard
  /// become those of the whole parameter. Blocks; every rank must call it, with the same names.
  NamedTensors gather(const NamedTensors& state) const;
  /// The reverse: this rank's part of such a state dict. Tensors of other shapes stay as they are.
  NamedTensors scatter(const NamedTensors& state) const;

  /// Which elements of a parameter this rank has a shard of, by a key of a state dict: its name, or
  /// "weight.exp_avg" of "weight". Nothing for keys of no parameter, and of numbers that it has one
  /// of, such as "weight.step".
  std::optional<ShardRange> range_of(std::string_view key) const;
  /// Gathers what the program has written to shards by hand since the last gather, where parameters
  /// stay whole; else their next use does. All ranks must have written to the same buckets' shards:
  /// a gather of other ranks' alone is refused on all.
  void share_writes();

  /// Gives the shards of the parameters that any rank used their gradients.
  /// @param users how many ranks used each; empty: all.
  void take_gradients(std::span<const std::int32_t> users);
  /// Clears them.
  void clear_gradients() noexcept;
  /// @throws InvalidArgument if a shard still has one, which the next would overwrite.
  void check_cleared() const;
  /// What brings parameters when they are used; null where they stay whole.
  GatheredParameters* gathered() const noexcept { return gathered_.get(); }
  /// Waits for all gathers, as uses of the parameters do.
  void wait() const;
  /// @throws InvalidArgument if a parameter's values lie elsewhere.
  void check_in_place() const;

 private:
  Tensor memory_for(std::size_t index) override { return gradients_[index]; }
  void on_final(std::size_t index) override;
  void check_update(std::size_t index) const override { updates_.check_update(index); }
  void on_clip(std::size_t index, std::string_view how) override { updates_.on_clip(index, how); }
  void on_update(std::size_t index, std::string_view how) override {
    updates_.on_update(index, how);
  }
  void after_update(std::size_t index) override { changed_[bucket_of_[index]].push_back(index); }
  void after_updates() override;
  autograd::GradientShare share(std::size_t) const override {
    return autograd::GradientShare::part;
  }
  bool is_averaged() const override { return true; }
  void on_clear(std::size_t index) noexcept override { updates_.on_clear(index); }
  void on_taken(std::size_t) noexcept override {}

  void place_whole(std::size_t index, std::int64_t offset);
  void make_shard(std::size_t index, std::int64_t offset, bool is_whole);
  void make_gate(std::size_t bucket);
  bool is_written(std::size_t index) const;
  void note_writes(std::size_t bucket);
  void note_writes_of_launches(StepRecording& step);
  enum class Writer : unsigned char { update, program };
  void renew(std::size_t bucket, std::span<const std::size_t> changed, Writer writer);
  comm::Work start_gather(std::size_t bucket, Writer writer) const;
  std::size_t parameter_of(std::string_view key) const;

  NamedTensors parameters_, shards_;
  CommunicatorPtr group_;
  std::vector<Tensor> values_, averages_;           // of each bucket
  std::vector<std::unique_ptr<GatherGate>> gates_;  // of each bucket, where parameters stay whole
  std::unique_ptr<GatheredParameters> gathered_;    // where they do not
  std::vector<Tensor> gradients_;                   // of each shard: its place in the averages
  std::vector<std::vector<std::int64_t>> ranges_;   // of each parameter: how much each rank has
  std::vector<std::size_t> bucket_of_;              // of each parameter
  std::vector<std::vector<std::size_t>> members_;   // of each bucket: its parameters
  std::vector<IntrusivePtr<Storage>> places_;       // of each parameter, where they stay whole
  autograd::GradientSink& updates_;
  Identify identify_;
  std::vector<std::vector<std::size_t>> changed_;  // of each bucket: by the update that is running
  std::vector<std::uint32_t> writes_;  // to each shard, as the other ranks have, or will get, them
};

}  // namespace lockstep::parallel
