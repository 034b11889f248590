#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/core/error.hpp"
#include "lockstep/data/batch_sampler.hpp"
#include "lockstep/data/batch_tensors.hpp"
#include "lockstep/data/dataset.hpp"
#include "lockstep/data/detail/copy_stream.hpp"
#include "lockstep/data/detail/failed_samples.hpp"
#include "lockstep/data/detail/prefetch_pipeline.hpp"
#include "lockstep/data/loader_share.hpp"

/// @file
/// Iterating over a data set in batches that are prepared ahead.

namespace lockstep::data {

/// How a DataLoader works.
struct DataLoaderOptions {
  /// Samples in a batch, over all ranks; see BatchOptions for this and the next four.
  std::int64_t batch_size = 1;
  bool drop_last = false;
  /// Ranks that get no sample of a last batch get what the data set's `fetch` gives for no indices:
  /// tensors of 0 rows, from this library's data sets. A train::Step takes them.
  bool allow_empty = false;
  int rank = 0;
  int world_size = 1;
  /// Threads that prepare batches; 0 prepares each one when it is asked for, on the caller's
  /// thread.
  int num_workers = 0;
  /// Batches prepared ahead, by all workers together.
  int prefetch = 4;
  /// Seeds the random numbers of the data set (SampleRandom): the same on all ranks for the same
  /// samples. Default: the seed of the thread that starts the first epoch (manual_seed); in a
  /// train::Loop, and behind train::agree_on_samples, rank 0's.
  std::optional<std::uint64_t> seed = {};
  /// Where the tensors of batches are handed out. On a GPU they are copied there on a stream of the
  /// loader's own, with workers as far ahead as `prefetch` says; the host waits for no copy. The
  /// type of a batch must be one in which `visit_tensors` finds tensors.
  Device device = cpu;
};

/// Where a loader stands: enough to go on from there, with any number of workers, of batches ahead
/// and of ranks. It counts samples, not batches, so that the batches may have another size, too.
struct LoaderState {
  std::uint64_t epoch = 0;
  /// Samples of the epoch's order that were handed out, over all ranks.
  std::int64_t samples = 0;
  /// Seed of the data set's random numbers; unset where none was given and no epoch has begun.
  std::optional<std::uint64_t> seed = {};
  /// What tells the data set, and the order up to here, from others; 0 fits any.
  std::uint64_t signature = 0;
  friend bool operator==(const LoaderState&, const LoaderState&) = default;
};

/// Hands out a data set's batches: `for (auto& batch : loader)` is one epoch, and the next such
/// loop the next epoch, in another order if the sampler draws one. Batches come in the sampler's
/// order whatever the number of workers. What `fetch` throws is thrown where that batch would have
/// come, as it is; where it ends the job, Session::run tells the numbers of the batch's samples.
/// Random numbers that `fetch` draws follow from the seed, the epoch and the samples; the
/// caller's own generator stays where it was. Leaving the loop early is fine. One consumer thread,
/// one loop at a time: another one inside it is refused.
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
        batches_(std::move(sampler), {.batch_size = options.batch_size,
                                      .drop_last = options.drop_last,
                                      .allow_empty = options.allow_empty,
                                      .rank = options.rank,
                                      .world_size = options.world_size}),
        options_(options),
        seed_(options.seed) {
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
  /// whose fetch threw comes after it. The same on all ranks that were handed as many batches, but
  /// for those of a DistributedSampler with Remainder::uneven, whose epochs differ in length.
  LoaderState state() const {
    LoaderState state{.seed = seed_};
    if (handed_out_ < batches_.size(start_)) {
      state.epoch = epoch_;
      state.samples = batches_.consumed(handed_out_, start_);
    } else {
      state.epoch = epoch_ + 1;
    }
    state.signature = signature_at(state);
    return state;
  }
  /// What of the samples it hands out, to be compared over ranks.
  LoaderShare share() const {
    const LoaderState place = state();
    const BatchOptions& cut = batches_.options();
    return {.dataset = dataset_signature(),
            .size = static_cast<std::int64_t>(dataset_.size()),
            .order = batches_.sampler().order_signature(),
            .epoch = place.epoch,
            .samples = place.samples,
            .batch_size = cut.batch_size,
            .drop_last = cut.drop_last,
            .world_size = batches_.world_size(),
            .rank = batches_.rank()};
  }
  /// The next loop starts there, with the seed of the state. The number of ranks and workers, and
  /// the size of batches may be others than those of the loader that gave it: the samples and their
  /// order stay the same.
  /// @throws InvalidArgument within a loop (`stop` ends one that was left), for a state of another
  /// data set, order or seed, and where ranks or batches do not fit what is left of the epoch.
  void load_state(const LoaderState& state) {
    LOCKSTEP_CHECK(!in_epoch_, InvalidArgument, "a loop is under way in epoch ", epoch_, " after ",
                   batches_.consumed(handed_out_, start_), " samples: a state of epoch ",
                   state.epoch, " and ", state.samples,
                   " samples would not change it; load it before the loop, or call stop() first");
    LOCKSTEP_CHECK(state.signature == 0 || state.signature == signature_at(state), InvalidArgument,
                   "the state is one of another data set or order (signature ", state.signature,
                   ", here ", signature_at(state),
                   "); has a file, an option of the data set, the sampler's seed, or a weight of "
                   "samples before the state changed?");
    LOCKSTEP_CHECK(!state.seed || !options_.seed || *state.seed == *options_.seed, InvalidArgument,
                   "the state has seed ", state.seed.value_or(0), ", and the loader ",
                   options_.seed.value_or(0), "; leave it out here, or give the same");
    batches_.check_consumed(state.samples);
    if (state.seed) seed_ = state.seed;
    go_to(state.epoch, state.samples);
  }
  /// Ends a loop that is under way or was left early, whose batch is gone then, as are those that
  /// were prepared ahead. The next one begins the next epoch, unless a state is loaded.
  void stop() {
    if (pipeline_) pipeline_->stop();
    for (Prepared& each : slots_) each = {};
    current_.reset();
    in_epoch_ = false;
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
    explicit Iterator(DataLoader* loader) : loader_(loader), life_(std::make_shared<int>()) {}
    DataLoader* loader_ = nullptr;
    std::shared_ptr<const int> life_;  // shared by copies
  };

  /// Starts an epoch: the one after the last, or what is left of the one that `load_state` named.
  /// Where the first batch's `fetch` throws, none has begun: the next loop tries that batch again.
  /// @throws InvalidArgument within a loop: while an iterator lives that is not at the end.
  Iterator begin() {
    LOCKSTEP_CHECK(!in_epoch_ || loop_.expired(), InvalidArgument,
                   "a loop over a DataLoader inside a loop over the same one, which is in epoch ",
                   epoch_, " after ", batches_.consumed(handed_out_, start_),
                   " samples; make a second loader, or call stop() first");
    if (pipeline_) pipeline_->stop();
    if (fetched_ > 0 || batches_.size(start_) == 0) go_to(epoch_ + 1, 0);
    if (!seed_) seed_ = default_generator().state().seed;
    random_ = {*seed_, epoch_};
    if (options_.num_workers > 0) start_workers();
    in_epoch_ = true;
    loop_.reset();
    try {
      advance();
    } catch (...) {  // no loop has begun
      stop();
      go_to(epoch_, start_);
      throw;
    }
    Iterator first(this);
    loop_ = first.life_;
    return first;
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
    pipeline_->start(0, batches_.size(start_));
  }

  std::uint64_t dataset_signature() const {
    if (!dataset_signature_) dataset_signature_ = signature_of_dataset(dataset_);
    return *dataset_signature_;
  }

  std::uint64_t signature_at(const LoaderState& place) const {
    return order_signature(static_cast<std::int64_t>(dataset_.size()), dataset_signature(),
                           batches_.sampler().signature_up_to(place.epoch, place.samples));
  }

  // The next loop starts there.
  void go_to(std::uint64_t epoch, std::int64_t samples) {
    epoch_ = epoch;
    start_ = samples;
    fetched_ = handed_out_ = 0;
  }

  Batch fetch(std::int64_t batch) const {
    const std::vector<std::int64_t> indices = batches_.indices(epoch_, batch, start_);
    const DefaultGeneratorScope scope(random_.of(indices.empty() ? 0 : indices.front()).state());
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
    if (!in_epoch_) return;
    if (fetched_ == batches_.size(start_)) {
      go_to(epoch_ + 1, 0);
      in_epoch_ = false;
      return;
    }
    const std::int64_t batch = fetched_++;
    hand_out(next(batch));
    handed_out_ = fetched_;
  }

  // Noted here, as of the exceptions that workers meet further on few may ever be thrown.
  Prepared next(std::int64_t batch) {
    try {
      return pipeline_ ? std::exchange(slots_[pipeline_->take()], {}) : prepare(batch);
    } catch (...) {
      note_failed(batch);
      throw;
    }
  }

  void note_failed(std::int64_t batch) const noexcept try {
    note_failed_samples(batches_.indices(epoch_, batch, start_), epoch_);
  } catch (...) {  // of the sampler, again: then it goes without
  }

  Batch& current() {
    LOCKSTEP_CHECK(current_, InvalidArgument,
                   "a DataLoader has no batch here: its fetch threw, or the epoch is over");
    return *current_;
  }

  D dataset_;
  BatchSampler batches_;
  DataLoaderOptions options_;
  std::uint64_t epoch_ = 0;
  std::int64_t start_ = 0;  // samples of the epoch that were consumed before its loop began
  std::int64_t fetched_ = 0, handed_out_ = 0;  // batches since then
  std::optional<std::uint64_t> seed_;          // of random numbers, once it is fixed
  bool in_epoch_ = false;
  std::weak_ptr<const int> loop_;                           // lives as iterators of the last do
  SampleRandom random_;                                     // of the epoch
  mutable std::optional<std::uint64_t> dataset_signature_;  // once it was asked for
  std::optional<Batch> current_;
  std::optional<CopyStream> copies_;  // to a GPU
  std::vector<Prepared> slots_;
  std::optional<PrefetchPipeline> pipeline_;  // the last member: its threads use the others
};

}  // namespace lockstep::data
