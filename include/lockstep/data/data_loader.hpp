#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/data/batch_sampler.hpp"
#include "lockstep/data/batch_tensors.hpp"
#include "lockstep/data/dataset.hpp"
#include "lockstep/data/detail/copy_stream.hpp"
#include "lockstep/data/detail/prefetch_pipeline.hpp"

/// @file
/// Iterating over a data set in batches that are prepared ahead.

namespace lockstep::data {

/// How a DataLoader works.
struct DataLoaderOptions {
  /// Samples in a batch; see BatchOptions for this and the next three.
  std::int64_t batch_size = 1;
  bool drop_last = false;
  int rank = 0;
  int world_size = 1;
  /// Threads that prepare batches; 0 prepares each one when it is asked for, on the caller's
  /// thread.
  int num_workers = 0;
  /// Batches prepared ahead, by all workers together.
  int prefetch = 4;
  /// Seeds the random numbers of the data set (SampleRandom): the same on all ranks for the same
  /// samples. Default: the seed of the thread that starts the epoch (manual_seed).
  std::optional<std::uint64_t> seed = {};
  /// Where the tensors of batches are handed out. On a GPU they are copied there on a stream of the
  /// loader's own, with workers as far ahead as `prefetch` says; the host waits for no copy. The
  /// type of a batch must be one in which `visit_tensors` finds tensors.
  Device device = cpu;
};

/// Where a loader stands: enough to go on from there, with any number of workers.
struct LoaderState {
  std::uint64_t epoch = 0;
  /// The next batch to hand out.
  std::int64_t batch = 0;
  friend bool operator==(const LoaderState&, const LoaderState&) = default;
};

/// Hands out a data set's batches: `for (auto& batch : loader)` is one epoch, and the next such
/// loop the next epoch, in another order if the sampler draws one. Batches come in the sampler's
/// order whatever the number of workers. What `fetch` throws is thrown where that batch would have
/// come. Random numbers that `fetch` draws follow from the seed, the epoch and the samples; the
/// caller's own generator stays where it was. Leaving the loop early is fine. One consumer thread,
/// one loop at a time.
template <Dataset D>
class DataLoader {
 public:
  using Batch = BatchOf<D>;

  /// @param dataset is moved or copied in; data sets are cheap to copy.
  /// @param sampler a Sampler over `dataset.size()` samples, or this rank's share of them.
  /// @throws InvalidArgument as BatchSampler does, and for negative numbers of workers or batches.
  template <std::derived_from<Sampler> S>
  DataLoader(D dataset, S sampler, DataLoaderOptions options = {})
      : dataset_(std::move(dataset)),
        batches_(std::move(sampler),
                 {options.batch_size, options.drop_last, options.rank, options.world_size}),
        options_(options) {
    LOCKSTEP_CHECK(options.num_workers >= 0 && options.prefetch > 0, InvalidArgument,
                   options.num_workers, " workers preparing ", options.prefetch,
                   " batches ahead; use 0 or more workers and 1 or more batches");
    if (options.device.is_cpu()) return;
    LOCKSTEP_CHECK(has_tensors<Batch>, InvalidArgument,
                   "batches of this data set hold no tensor to put on ", options.device,
                   "; give their struct a method visit_tensors(visit), or leave the device out");
    copies_.emplace(options.device);
  }
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  /// Number of batches in an epoch.
  std::int64_t size() const { return batches_.size(); }
  /// The data set.
  const D& dataset() const { return dataset_; }

  /// Where to go on after the batch that was handed out last: save it with a checkpoint. A batch
  /// whose fetch threw comes after it.
  LoaderState state() const {
    if (resume_.batch < size()) return resume_;
    return {resume_.epoch + 1, 0};
  }
  /// The next loop starts there, and one under way ends. @throws InvalidArgument for a batch that
  /// the epoch does not have.
  void load_state(LoaderState state) {
    LOCKSTEP_CHECK(state.batch >= 0 && state.batch < size(), InvalidArgument, "batch ", state.batch,
                   " does not exist in an epoch of ", size(),
                   " batches; was the state saved with another data set or batch size?");
    next_ = resume_ = state;
    resumes_ = true;
    in_epoch_ = false;  // a loop that is under way ends
  }

  /// Reads the batches of one epoch; see DataLoader.
  class Iterator {
   public:
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    /// An iterator that is not over any loader.
    Iterator() = default;
    /// The batch, which may be moved from. @throws InvalidArgument where there is none, since its
    /// `fetch` threw.
    Batch& operator*() const { return loader_->current(); }
    /// A member of the batch.
    Batch* operator->() const { return &loader_->current(); }
    /// Waits for the next batch. @throws what its `fetch` threw; the call after that leaves the
    /// batch out.
    Iterator& operator++() {
      loader_->advance();
      return *this;
    }
    /// The same.
    void operator++(int) { loader_->advance(); }
    /// True after the epoch's last batch.
    bool operator==(std::default_sentinel_t) const { return !loader_->in_epoch_; }

   private:
    friend class DataLoader;
    explicit Iterator(DataLoader* loader) : loader_(loader) {}
    DataLoader* loader_ = nullptr;
  };

  /// Starts an epoch: the one after the last, or the one that `load_state` named.
  Iterator begin() {
    const bool resumes = std::exchange(resumes_, false);
    if (next_.batch > 0 && !resumes) next_ = {next_.epoch + 1, 0};
    resume_ = next_;
    if (pipeline_) pipeline_->stop();
    order_ = batches_.order(next_.epoch);
    random_ = {options_.seed.value_or(default_generator().state().seed), next_.epoch};
    if (options_.num_workers > 0) start_workers();
    in_epoch_ = true;
    advance();
    return Iterator(this);
  }
  /// The end of every epoch.
  std::default_sentinel_t end() const { return {}; }

 private:
  void start_workers() {
    // One slot more than batches ahead: the one whose batch was handed out last.
    if (!pipeline_) {
      slots_.resize(static_cast<std::size_t>(options_.prefetch) + 1);
      pipeline_.emplace(
          options_.num_workers, options_.prefetch + 1,
          [this](std::int64_t batch, std::size_t slot) { slots_[slot] = prepare(batch); });
    }
    pipeline_->start(next_.batch, size());
  }

  Batch fetch(std::int64_t batch) const {
    const std::span<const std::int64_t> indices = batches_.part(order_, batch);
    const DefaultGeneratorScope scope(random_.of(indices.front()).state());
    return data::fetch(dataset_, indices, random_);
  }

  /// A batch, and where it goes to a GPU the mark at which it is there.
  struct Prepared {
    std::optional<Batch> batch;
    std::optional<Event> sent;
  };

  Prepared prepare(std::int64_t batch) const {
    Prepared prepared;
    prepared.batch.emplace(fetch(batch));
    if (copies_) prepared.sent.emplace(copies_->send(*prepared.batch));
    return prepared;
  }

  void hand_out(Prepared prepared) {
    if (prepared.sent) copies_->receive(*prepared.batch, *prepared.sent);
    current_ = std::move(prepared.batch);
  }

  void advance() {
    current_.reset();
    if (next_.batch == size()) {
      next_ = resume_ = {next_.epoch + 1, 0};
      in_epoch_ = false;
    }
    if (!in_epoch_) return;
    const std::int64_t batch = next_.batch++;
    hand_out(pipeline_ ? std::exchange(slots_[pipeline_->take()], {}) : prepare(batch));
    resume_ = next_;
  }

  Batch& current() {
    LOCKSTEP_CHECK(current_, InvalidArgument,
                   "a DataLoader has no batch here: its fetch threw, or the epoch is over");
    return *current_;
  }

  D dataset_;
  BatchSampler batches_;
  DataLoaderOptions options_;
  LoaderState next_;    // to be fetched
  LoaderState resume_;  // behind what was handed out
  bool resumes_ = false, in_epoch_ = false;
  std::vector<std::int64_t> order_;
  SampleRandom random_;  // of the epoch
  std::optional<Batch> current_;
  std::optional<CopyStream> copies_;  // to a GPU
  std::vector<Prepared> slots_;
  std::optional<PrefetchPipeline> pipeline_;  // the last member: its threads use the others
};

}  // namespace lockstep::data
