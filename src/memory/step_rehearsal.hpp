#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "lockstep/core/device.hpp"
#include "lockstep/core/intrusive_ptr.hpp"
#include "lockstep/core/shape.hpp"
#include "runtime/foreign_reads.hpp"

/// @file
/// The last eager call of a step before its capture.

namespace lockstep {

class Allocator;
struct MemoryBlock;

/// What a thread does while it calls a step eagerly as the capture behind it will: with the memory
/// of the graphs, on their stream.
///
/// - What a capture keeps to its end, it keeps, too, so that the capture finds as much memory as it
///   needs.
/// - The step's work is not in the order of the streams from which memory of others is. What it
///   returns of that goes back when the rehearsal ends, by when they have to wait for it.
/// - It finds out what no launch could do: read tensors that go with the call.
class StepRehearsal {
 public:
  /// @param device computes the step. @param memory serves what is allocated there meanwhile.
  StepRehearsal(Device device, const Allocator& memory) noexcept;
  StepRehearsal(const StepRehearsal&) = delete;
  StepRehearsal& operator=(const StepRehearsal&) = delete;
  /// Returns what was kept. The streams of others wait for the step's.
  ~StepRehearsal();
  /// That of the calling thread, or null.
  static StepRehearsal* current() noexcept { return current_; }

  /// Keeps the memory of the first of an object's calls; not on the CPU, where a capture may ask
  /// for more, nor where host memory is short.
  void keep(const void* object, IntrusivePtr<RefCounted> memory) noexcept;
  /// Returns a block of an allocator, at the end if it is another's.
  void give_back(Allocator& from, MemoryBlock* block, Device device) noexcept;

  /// The call makes an array (a Storage), and gives it up.
  void note_made(RefCounted* array);
  void note_gone(RefCounted* array) noexcept;
  /// What the call has made and somebody has.
  const std::unordered_set<RefCounted*>& made() const noexcept { return made_; }
  /// The call reads an array, through a tensor of such a shape.
  void note_read(const IntrusivePtr<RefCounted>& array, std::string_view reader,
                 const Shape& shape);
  /// True if it is told of this object for the first time.
  bool meets(const void* object) { return objects_.insert(object).second; }
  /// Of an array that is read somebody else says whether launches find it: a leaf, of its gradient.
  void note_watched(const RefCounted* array);
  /// To be done by `end` with an object, if graphs of other forms are there, and the object is.
  void at_end(IntrusivePtr<RefCounted> object, std::function<void()> action) {
    at_end_.push_back({Keeper(std::move(object)), std::move(action)});
  }
  /// The call has returned: lets go of objects that went with it, and of what these have.
  void let_go();
  /// The current stream is the caller's. What was kept for that is done.
  void end();
  /// The step does what no launch could.
  void refuse(std::string_view reason);
  /// Why no launch could do what the call has done, which has returned: a reason that was given, or
  /// that it read what it did not make, and nobody has any more. Empty if there is none.
  std::string refusal() const;

 private:
  struct AtEnd {
    Keeper object;
    std::function<void()> action;
  };

  StepRehearsal* const outer_;
  const Device device_;
  const Allocator* const memory_;
  std::map<const void*, Keeper> kept_;
  std::vector<std::pair<Allocator*, MemoryBlock*>> aside_;
  std::unordered_set<RefCounted*> made_;
  std::unordered_set<const void*> objects_;
  ForeignReads read_;
  std::vector<AtEnd> at_end_;
  std::string refusal_;

  static inline constinit thread_local StepRehearsal* current_ = nullptr;
};

}  // namespace lockstep
