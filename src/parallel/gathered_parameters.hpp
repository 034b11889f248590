#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/parallel/bucket_plan.hpp"
#include "lockstep/tensor/named_tensors.hpp"
#include "parallel/gathered_array.hpp"

/// @file
/// Parameters that are whole while they are used, and of which each rank keeps its part otherwise.

namespace lockstep::parallel {

/// Brings the parameters of a bucket to all ranks when a forward or a backward first uses one of
/// them, and lets go of them again (ZeRO, stage 3). Meanwhile the bucket that came next the last
/// time is on its way. Between uses a parameter has its shape, and no memory (MemoryGate): tensors
/// that ops saved for backward are handles of it, so that they keep nothing alive, and use brings
/// the values back, which are the same until an update.
///
/// At most `window` buckets that were used stay. One is let go where no op can be in the middle of
/// using it: its memory goes with the next *moment*, the start of a module or of an op's backward.
///
/// What is written to a parameter is kept while all are held, and goes with the array elsewhere:
/// who uses the parameters next is told. What is written to this rank's part is seen by the next
/// forward, backward or hold.
///
/// Ranks run the same modules, so that they use, gather and let go alike. A gather says how often
/// its bucket was updated, and for which forward of the step it is: ranks that were not alike are
/// refused. One thread at a time.
class GatheredParameters {
 public:
  /// How the gather of a bucket names itself to the other ranks.
  using Identify = std::function<comm::CollectiveId(std::size_t bucket)>;
  /// Buckets that were used and stay; one more is on its way, one may be let go.
  static constexpr std::size_t window = 2;

  /// @param own this rank's part of each bucket, which holds what shall be gathered.
  /// @param in_backward whether a backward runs that uses the parameters.
  GatheredParameters(NamedTensors parameters, CommunicatorPtr group, std::span<const Bucket> plan,
                     std::vector<Tensor> own, Identify identify, std::function<bool()> in_backward);
  GatheredParameters(const GatheredParameters&) = delete;
  GatheredParameters& operator=(const GatheredParameters&) = delete;
  /// The parameters are of no use any more, unless they are held: then they stay whole.
  ~GatheredParameters();
  /// For whoever may end later.
  std::weak_ptr<GatheredParameters*> self() const noexcept { return self_; }

  /// @name Uses are allowed from begin to end
  /// Who begins throws as `check_kept`.
  /// @{
  /// @param reduces whether a backward through it reduces gradients, or only adds them up.
  void begin_forward(bool reduces);
  /// @param keeps whether a backward may follow soon, which begins where the forward ends.
  void end_forward(bool keeps) noexcept;
  void begin_backward();
  void end_backward() noexcept;
  /// The same, of a backward that has reduced gradients.
  void end_step() noexcept {
    forwards_of_step_ = 0;
    end_backward();
  }
  /// All parameters, until the call is taken back.
  /// @throws InvalidArgument inside a backward, whose op may be using what would be let go.
  void hold();
  /// Takes over what was written to them meanwhile.
  void release() noexcept;
  bool is_held() const noexcept { return holds_ > 0; }
  /// @}

  /// Tells from now on of each gather of a training: neither of those of forwards that record
  /// nothing, nor of holds.
  void on_gather(std::function<void(const comm::Work&)> tell) { tell_ = std::move(tell); }
  /// A module begins.
  void begin_module();
  /// The bucket's gradients are final: the backward does not want it any more.
  void let_go(std::size_t bucket);
  /// An update has changed this rank's part of a bucket, or has queued that.
  void changed(std::size_t bucket);
  /// The parameter has other memory from now on, and is nobody's here.
  void leave_out(std::size_t parameter) noexcept;
  /// @throws InvalidArgument if a parameter was given another array.
  void check_in_place() const;
  /// @throws InvalidArgument, once, if something was written to a parameter that is not kept.
  void check_kept();

 private:
  class Gate;
  struct State {
    Tensor own;
    std::vector<std::size_t> parameters;
    std::vector<std::int64_t> offsets;
    std::int64_t numel = 0;
    IntrusivePtr<Gate> gate;
    IntrusivePtr<Storage> absent;          // what parameters have in the place of an array
    std::unique_ptr<GatheredArray> array;  // all values, or where they are being gathered
    bool in_use = false;                   // the parameters have the array
    bool done = false;                     // backward does not want it any more
    std::uint64_t used_at = 0;             // moment
    std::uint32_t values = 0;              // another number after each change of values
    std::uint32_t own_version = 0;         // of the storage, with these values
    std::uint64_t updates = 0;             // changes that all ranks made
  };
  struct Former {
    Tensor array;
    std::uint64_t let_go_at;
  };

  std::uint64_t moment() const noexcept;
  std::string user() const;
  bool allows_use() const { return forwards_ > 0 || holds_ > 0 || in_backward_(); }
  void use(std::size_t bucket, const TensorImpl& tensor);
  void start(std::size_t bucket);
  void wait_and_point(std::size_t bucket);
  void prefetch_after(std::size_t bucket);
  void tidy(std::size_t keeps);
  void note_loss(const State& state);
  void notice_writes();
  void take_over(State& state);
  void free(std::size_t bucket);
  void drop(std::size_t bucket);
  void forget(std::size_t bucket) noexcept;
  void free_all() noexcept;
  bool has_our_memory(const State& state, const TensorImpl* parameter) const noexcept;
  void point(const State& state, const IntrusivePtr<Storage>& storage) const noexcept;
  void begin_sequence(std::vector<std::size_t>& last);
  void end_sequence();

  std::shared_ptr<GatheredParameters*> self_;
  NamedTensors parameters_;
  std::vector<TensorImpl*> impls_;  // theirs; null for those that were left out
  CommunicatorPtr group_;
  std::vector<State> buckets_;
  Identify identify_;
  std::function<bool()> in_backward_;
  std::function<void(const comm::Work&)> tell_;
  std::vector<std::uint32_t> exchanges_;  // of each parameter at first
  int forwards_ = 0, holds_ = 0;
  bool trains_ = false;             // the forward that runs
  bool reduces_ = false;            // the same: a backward through it does
  int forwards_of_step_ = 0;        // that were recorded since gradients were reduced
  std::string lost_;                // a parameter to which something was written that is not kept
  std::uint64_t modules_ = 0;       // that have begun
  std::vector<std::size_t> order_;  // buckets in use, as they came
  std::vector<Former> former_;      // arrays that an op may be using
  std::vector<std::size_t> of_forward_, of_backward_;  // buckets as the last one used them
  std::vector<std::size_t>* last_ = nullptr;           // of these
  std::vector<std::size_t> now_;                       // the same of the one that runs
};

}  // namespace lockstep::parallel
