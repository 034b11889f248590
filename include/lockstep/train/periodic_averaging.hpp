#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/checkpoint/state.hpp"
#include "lockstep/nn/distributed_data_parallel.hpp"
#include "lockstep/optim/optimizer.hpp"
#include "lockstep/optim/sgd.hpp"
#include "lockstep/parallel/tensor_work.hpp"
#include "lockstep/tensor/named_tensors.hpp"

/// @file
/// Data parallelism that averages parameters every few steps, in the place of gradients in each.

namespace lockstep {

/// Options of LocalSGD.
struct LocalSGDOptions {
  std::int64_t sync_every = 16;  ///< steps from one average to the next
};

/// Options of DiLoCo; names are torchft's, defaults the papers'.
struct DiLoCoOptions {
  /// Steps of a round: from one exchange of a parameter to its next.
  std::int64_t sync_every = 100;
  double outer_lr = 0.7;        ///< of the outer SGD
  double outer_momentum = 0.9;  ///< of Nesterov's kind; 0: none
  /// Parts of the model, of about as many elements each, that are exchanged in turns within a
  /// round. At most `sync_every`.
  std::int64_t fragments = 1;
  /// So many steps are made while a fragment's average is on its way. Below `sync_every`.
  std::int64_t fragment_sync_delay = 0;
  /// How much of what a rank has stays when the outer parameters arrive, in [0, 1): 0, nothing of
  /// it; the paper takes 0.5 with a delay.
  double fragment_update_alpha = 0;

  /// @throws InvalidArgument for values out of range.
  void check() const;
};

/// What LocalSGD and DiLoCo do alike; use these.
///
/// From its making on a backward of the DistributedDataParallel leaves the rank's own gradients,
/// and each rank steps alone. It hooks the end of the optimizer's `step`, counts, and exchanges
/// parameters when their turn comes: of bf16 and f16 parameters their master copies. Floating
/// buffers (running statistics) are averaged, too, with the first fragment; others are the rank's.
///
/// Every exchange tells the other ranks the number of steps, of forwards, and the learning rates: a
/// rank that has made one more of these, or has another rate, is refused on all. At the end of the
/// job the number of steps is compared.
///
/// A step that a loss scaler skips counts; scales are the rank's own. A step cannot be captured. No
/// rank may be without data. One thread at a time; all ranks must make the same calls.
class PeriodicAveraging {
 public:
  PeriodicAveraging(const PeriodicAveraging&) = delete;
  PeriodicAveraging& operator=(const PeriodicAveraging&) = delete;
  /// The optimizer steps on, but the wrapper trains no more. Waits for nothing.
  virtual ~PeriodicAveraging();

  /// Steps of the optimizer since it was made.
  std::int64_t steps() const noexcept { return step_; }
  /// Finishes what is under way, and exchanges all that was not exchanged in this step; the
  /// parameters, and floating buffers, are equal on all ranks then, bit for bit. Before models are
  /// evaluated or saved. Blocks; every rank must call it, between steps.
  /// @throws comm::Mismatch on every rank where they have made different numbers of steps;
  /// InvalidArgument while a WeightAverage has its averages in the parameters.
  void synchronize();
  /// Bytes of the arrays that this rank gave to all-reduces.
  std::uint64_t bytes_reduced() const noexcept { return bytes_reduced_; }

  /// What a checkpoint must keep, each rank its own beside its model's and its optimizer's, for
  /// exact resumption: "step", of DiLoCo "outer.NAME" and "outer_optimizer.NAME.momentum_buffer",
  /// and of each fragment when it was exchanged, and its average if it is on its way. Waits for
  /// that, and for the device.
  NamedTensors state_dict();
  /// Takes over what `state_dict` gave. Changes nothing if it throws. Blocks;
  /// every rank must call it. @throws InvalidArgument naming what does not fit, comm::Mismatch
  /// where the ranks' states are not of one step.
  void load_state_dict(const NamedTensors& state);

 protected:
  /// @param has_outer whether averages go through an outer optimizer.
  PeriodicAveraging(std::string name, nn::ReplicatedModule& replica, optim::Optimizer& optimizer,
                    const DiLoCoOptions& options, bool has_outer);

 private:
  /// A parameter, or a buffer, and its place in the array of its fragment and dtype.
  struct Entry {
    std::string name;
    Tensor tensor;
    std::optional<std::size_t> state = {};  // of a parameter: which the optimizer keeps for it
    Tensor outer = {};  // f32 or f64; undefined where averages are taken as they are
    std::size_t array = 0;
    std::int64_t offset = 0;
  };
  struct Fragment {
    std::vector<Entry> entries;
    std::vector<DType> dtypes;        // of its arrays
    std::vector<std::int64_t> sizes;  // their elements
    std::int64_t started = -1;        // after which step; -1: never
    bool is_pending = false;
    std::vector<Tensor> arrays;  // while pending
    std::vector<parallel::TensorWork> works;
  };

  friend checkpoint::TensorState state_of(PeriodicAveraging& averaging);

  void take_over(const NamedTensors& state);
  void take_parameters();
  void begin();
  void add(Fragment& fragment, Entry entry) const;
  std::vector<Tensor> empty_arrays(const Fragment& fragment) const;
  static Tensor place_of(const Entry& entry, const std::vector<Tensor>& arrays);
  void make_fragments(const NamedTensors& parameters, const NamedTensors& buffers);
  Tensor master_of(const Entry& entry) const;
  Tensor wide_value(const Entry& entry) const;
  void write(const Entry& entry, const Tensor& value, double kept) const;
  void after_step();
  std::string describe(std::size_t fragment) const;
  void start(std::size_t fragment);
  void finish(std::size_t fragment, double kept);
  void declare_end() noexcept;

  std::string name_;
  nn::ReplicatedModule& replica_;
  optim::Optimizer& optimizer_;
  CommunicatorPtr group_;
  DiLoCoOptions options_;
  std::vector<Fragment> fragments_;
  std::optional<optim::SGD> outer_;
  std::uint64_t number_ = 0, hook_ = 0, bytes_reduced_ = 0;
  std::int64_t step_ = 0;
  bool declared_ = false;
  bool follows_parameters_;                   // the outer ones do, as no training has begun
  std::shared_ptr<PeriodicAveraging*> self_;  // ends with this; known to whoever may outlive it
};

/// For checkpoint::Manager: what is alike on all ranks, and right on any number of them. Model,
/// optimizer and scaler are added beside it, each with the wrapper: `add("scaler", scaler, ddp)`.
checkpoint::TensorState state_of(PeriodicAveraging& averaging);

/// Local SGD (McMahan et al. 2016; Stich 2018): each rank trains alone, and every few steps all
/// take the average of their parameters. PyTorch's PeriodicModelAverager.
///
///     DistributedDataParallel ddp(model, session.world());
///     optim::AdamW optimizer(ddp.named_parameters(), {.lr = 1e-3});
///     LocalSGD averaging(ddp, optimizer, {.sync_every = 16});
///     ... the loop stays as it is ...
///     averaging.synchronize();
class LocalSGD final : public PeriodicAveraging {
 public:
  /// Blocks; every rank must call it, between steps.
  /// @param ddp with the default options `zero_stage`, and without a communication hook; outlives
  /// this. @param optimizer of all its parameters that train; outlives this.
  /// @throws InvalidArgument for options out of range, or that differ between the ranks, for a
  /// parameter that the optimizer does not have, and what ReplicatedModule::keep_gradients refuses.
  template <class M>
  LocalSGD(DistributedDataParallel<M>& ddp, optim::Optimizer& optimizer,
           const LocalSGDOptions& options = {})
      : PeriodicAveraging("LocalSGD", ddp.replica(), optimizer, {.sync_every = options.sync_every},
                          false) {}
};

/// DiLoCo (Douillard et al. 2023): each rank trains alone; every `sync_every` steps an outer
/// optimizer, SGD with Nesterov's momentum, takes what the ranks have moved on the average for a
/// gradient, and all go on from its parameters. With `fragments` and a `fragment_sync_delay`
/// Streaming DiLoCo (Douillard et al. 2025): parts of the model are exchanged in turns, while ranks
/// go on.
///
/// The outer parameters are the same on all ranks, bit for bit, after each exchange; those of the
/// model are these then, but where a delay or an alpha lets each rank keep something of its own.
///
/// Keeps outer parameters and their momentum in f32 (f64 for f64 parameters).
class DiLoCo final : public PeriodicAveraging {
 public:
  /// As LocalSGD. The outer parameters are first those that rank 0 has in the first forward that is
  /// recorded: a checkpoint that has none of them may be loaded until then.
  template <class M>
  DiLoCo(DistributedDataParallel<M>& ddp, optim::Optimizer& optimizer,
         const DiLoCoOptions& options = {})
      : PeriodicAveraging("DiLoCo", ddp.replica(), optimizer, options, true) {}
};

}  // namespace lockstep
