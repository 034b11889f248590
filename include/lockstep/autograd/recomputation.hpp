#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "lockstep/autograd/place.hpp"
#include "lockstep/autograd/saved_tensor.hpp"
#include "lockstep/core/dtype.hpp"
#include "lockstep/core/intrusive_ptr.hpp"
#include "lockstep/tensor/random_position.hpp"
#include "lockstep/tensor/tensor.hpp"

/// @file
/// Parts of a forward that keep nothing for backward, and are run again when it needs something
/// (Chen, Xu, Zhang and Guestrin 2016). Programs use it through nn::checkpoint.

namespace lockstep::autograd {

/// One such part. While it is recorded, the SavedTensors of its ops are left to it: they keep a
/// number each in place of an array. The first of them that a backward asks for runs the part again
/// with the same modes and random numbers, and all get their values; each is dropped with the node
/// that saved it. The graph is that of the first run, so gradients, hooks and the order in which
/// parameters become final are as without it. Parameters are kept as they are.
///
/// Of whatever else its recorded ops read it keeps no handle, but what tells a change: the numbers
/// of writes, in the order of the ops, are the same in each run.
///
/// Belongs to the thread of its graph, as nodes do.
class Recomputation final : public RefCounted {
 public:
  /// @param again runs the part: called once a backward at most, while values are missing. What it
  /// refers to must live as long as the graph.
  explicit Recomputation(std::function<void()> again);

  /// Leaves what the calling thread's ops save to the part, until the end of scope.
  class RecordGuard {
   public:
    /// Begins.
    explicit RecordGuard(Recomputation& part) noexcept;
    RecordGuard(const RecordGuard&) = delete;
    RecordGuard& operator=(const RecordGuard&) = delete;
    ~RecordGuard();

   private:
    Recomputation& part_;
    Recomputation* previous_;
  };

  /// True while the calling thread runs a part again: what must happen once, like an update of
  /// running statistics, has happened.
  static bool is_running() noexcept;
  /// True while the calling thread records or runs a part.
  static bool is_open() noexcept;
  /// A recorded op of the part reads a tensor. @throws InvalidArgument in a later run, if it was
  /// changed since the first.
  void note_use(std::string_view op, const Tensor& operand);
  /// An op of the part that the calling thread records or runs, if any, does what no operand tells.
  /// @param op what is chosen, for messages: "the mode of dropout"
  /// @throws InvalidArgument in a later run whose choice is another.
  static void note_choice(std::string_view op, double choice);

 private:
  friend class SavedTensor;
  class Slot;
  /// What an op reads or does: the value stamp, or the choice.
  struct Use {
    std::string_view op;
    std::uint64_t stamp;
  };

  void destroy() noexcept override { delete this; }
  /// Takes a tensor that is being saved; in the first run a placeholder comes in its place.
  void add(Tensor& saved, std::uint64_t& stamp);
  /// What stands behind a placeholder.
  static const Tensor& value_of(const Tensor& placeholder);
  const Tensor& value(std::size_t index);
  /// Notes a use in the first run. @return in a later one the next of that op in the first, else
  /// null. @throws InvalidArgument if there was none.
  const Use* note(const Use& use);
  void run();

  std::function<void()> again_;
  RandomPosition random_;
  std::array<DType, 2> autocast_;
  PlaceId place_;
  std::vector<Slot*> slots_;         // of each SavedTensor; null: kept, or gone
  std::vector<SavedTensor> values_;  // of the last run
  std::vector<Use> uses_;            // of the first run
  std::size_t next_ = 0;             // of the SavedTensors of this run
  std::size_t next_use_ = 0;         // of its uses
  Recomputation* within_ = nullptr;  // the part, recorded or run, in which this one is recorded
  bool running_ = false;
};

}  // namespace lockstep::autograd
