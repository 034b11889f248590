#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/core/function_ref.hpp"
#include "lockstep/core/intrusive_ptr.hpp"
#include "lockstep/core/philox.hpp"
#include "lockstep/core/shape.hpp"
#include "lockstep/runtime/stream.hpp"
#include "runtime/foreign_reads.hpp"
#include "runtime/step_launcher.hpp"

/// @file
/// A step that a stream captures, for whoever has a part in it on the host.

namespace lockstep {

class Allocator;

/// What the host has to do for a step that a device captures once and replays. Code that changes
/// something on the host when it queues work asks for the recording of its thread: while there is
/// one, nothing that it queues runs, and what it does on the host is wanted again in each launch of
/// the graph. So it changes nothing then, but says here what each launch shall do.
///
/// Graphs are launched on one thread, one after the other.
class StepRecording {
 public:
  using Action = std::function<void()>;
  /// Tells why a launch would not do what the step does now; empty if it would.
  using Condition = std::function<std::string()>;
  /// What becomes of collectives that all ranks of a group must capture alike.
  enum class Collectives {
    refused,   ///< nobody asks the other ranks whether they capture, too
    left_out,  ///< the ranks find out first whether each can capture the step
    captured
  };

  /// What the calling thread captures, or null.
  static StepRecording* current() noexcept { return current_; }
  /// What the calling thread captures of such a device's work, or null.
  static StepRecording* on(Device device) noexcept {
    return current_ && current_->stream_.device.type == device.type ? current_ : nullptr;
  }
  /// While a thread of the process captures, from before the first of its streams does.
  class Opening;
  /// True while any thread of the process captures.
  static bool is_any_open() noexcept;
  /// Does something unless any thread captures, of which none begins meanwhile. @return whether.
  static bool unless_any_is_open(FunctionRef<void()> action);

  /// @param stream captures. @param memory serves what is allocated on the device meanwhile.
  /// @param random where draws find their place: written before each launch.
  StepRecording(StreamRef stream, Allocator& memory, PhiloxState* random, Collectives collectives);
  StepRecording(const StepRecording&) = delete;
  StepRecording& operator=(const StepRecording&) = delete;

  /// Begins and ends to be the current one; the stream captures in between.
  class Scope;

  /// A number that no other recording has.
  std::uint64_t number() const noexcept { return number_; }
  StreamRef stream() const noexcept { return stream_; }
  Allocator& memory() const noexcept { return memory_; }

  /// To be done before each launch, in the order in which the step asked for it.
  void before_launch(Action action) { before_.push_back(std::move(action)); }
  /// The same of what an eager step would not have done where it throws before it comes here: a
  /// launch that does so undoes it. @param undo must not throw.
  void before_launch(Action action, Action undo);
  /// To be done after each launch, in that order.
  void after_launch(Action action) { after_.push_back(std::move(action)); }
  /// To be done if a launch throws, which only the CPU's do midway. @param action is told why.
  void when_launch_fails(std::function<void(const std::string&)> action) {
    when_launch_fails_.push_back(std::move(action));
  }
  /// What must hold for a launch; asked before anything of it is done.
  void require(Condition condition) { conditions_.push_back(std::move(condition)); }
  /// To be done once the stream has ended to capture, whether well or not.
  void at_end(Action action) { at_end_.push_back(std::move(action)); }
  /// To be done once if the capture has succeeded.
  void when_captured(Action action) { when_captured_.push_back(std::move(action)); }
  /// To be done once if it has not: brings back what was before, in reverse order.
  void when_abandoned(Action action) { when_abandoned_.push_back(std::move(action)); }
  /// True if the recording is told of this object for the first time.
  bool meets(const void* object) { return met_.insert(object).second; }
  bool has_met(const void* object) const { return met_.contains(object); }
  /// What a part of the library keeps for all its objects in the step: `T(recording)`, made by the
  /// first call. It may ask to be called with each launch, which is cheaper than once an object.
  template <class T>
  T& part() {
    static const char key = 0;
    std::shared_ptr<void>& place = parts_[&key];
    if (!place) place = std::make_shared<T>(*this);
    return *static_cast<T*>(place.get());
  }
  /// Another stream takes part from now on, and has to be joined at the end.
  void fork(StreamRef stream);

  /// The step allocates memory in the order of a stream: what it writes there is nobody else's.
  void note_memory(const void* memory, std::size_t bytes, StreamRef stream);
  bool has_made(const void* memory) const { return writes_to(memory, 1); }
  /// Whether any of these bytes are memory that the step has allocated: launches write there.
  bool writes_to(const void* memory, std::size_t bytes) const;
  /// The step writes to an array (a Storage), which each launch does again. Of its own it need not
  /// say so.
  void note_write(const void* memory, const IntrusivePtr<RefCounted>& array) {
    if (!has_made(memory) && meets(array.get())) written_.emplace_back(array);
  }
  /// The step reads an array (a Storage), through a tensor of such a shape, which each launch does
  /// again: it lives as long as the graph, and launches end when nobody has it any more.
  void note_read(const void* memory, const IntrusivePtr<RefCounted>& array, std::string_view reader,
                 const Shape& shape) {
    if (!has_made(memory)) read_.note(array, reader, shape);
  }
  /// Of an array that is read somebody else says whether launches find it: a leaf, of its gradient.
  void note_watched(const RefCounted* array) { read_.note_watched(array); }
  /// What the step has read and nobody has any more: empty if there is nothing.
  std::string lost_read() const;
  /// The arrays that each launch writes to, each once. They live as long as the graph.
  const std::vector<Keeper>& written() const noexcept { return written_; }

  /// What the step leaves in memory that it has allocated, until others replace it: a gradient.
  struct Left {
    const void* object;  // whose it is: `has_met` of graphs that replace it themselves
    const void* memory;
    std::size_t bytes;
    std::function<bool()> is_there;
  };
  void note_left(Left left) { left_.push_back(std::move(left)); }
  const std::vector<Left>& left() const noexcept { return left_; }

  /// Where the next draw of the calling thread's generator finds the place before it.
  const PhiloxState* random() const noexcept { return random_; }
  /// How many draws the step has made before this one.
  std::uint64_t next_draw() noexcept { return draws_++; }
  std::uint64_t draws() const noexcept { return draws_; }
  /// Draws begin from there again.
  void set_draws(std::uint64_t draws) noexcept { draws_ = draws; }

  /// The step does what no launch could. The capture fails for that once the step has returned:
  /// what is refused in the midst of a backward would have to be undone.
  void refuse(std::string reason) {
    if (refusal_.empty()) refusal_ = std::move(reason);
  }
  /// The same where that is known when the step has returned.
  void refuse_if(Condition condition) { asked_at_return_.push_back(std::move(condition)); }
  /// Of a step that has returned: why no launch could do it; empty if one could.
  std::string refusal() const;
  /// Says that what is missing may be there after one more eager step: memory, states.
  void suggest_another_try() noexcept { another_try_ = true; }
  bool wants_another_try() const noexcept { return another_try_; }
  /// The ranks of a group have a collective in the step, which they must capture alike.
  /// @return false if it is to be left out. @throws Unsupported where collectives are refused.
  bool captures_collectives_of(std::string_view group) const;
  /// The graph, once there is one.
  const std::shared_ptr<StepLauncher>& launcher() const noexcept { return launcher_; }

  const std::vector<StreamRef>& forks() const noexcept { return forks_; }
  /// The streams in the order of which it has allocated memory.
  const std::vector<StreamRef>& memory_streams() const noexcept { return memory_streams_; }
  std::string unmet_condition() const;
  void run_before() const;
  void run_after() const;
  void run_failed(const std::string& reason) const;
  /// The stream has ended to capture. What was kept for that is done.
  void end();
  /// Whether launches will follow is known. What was kept for that is done.
  void conclude(bool captured);

 private:
  StreamRef stream_;
  Allocator& memory_;
  PhiloxState* random_;
  Collectives collectives_;
  std::uint64_t number_, draws_ = 0;
  bool another_try_ = false;
  std::string refusal_;
  std::shared_ptr<StepLauncher> launcher_;
  std::vector<StreamRef> forks_, memory_streams_;
  std::set<const void*> met_;
  std::map<std::uintptr_t, std::uintptr_t> made_;  // begin and end of ranges that do not touch
  std::vector<Keeper> written_, unnamed_;
  ForeignReads read_;
  std::vector<Left> left_;
  std::map<const void*, std::shared_ptr<void>> parts_;
  std::vector<Action> before_, after_, at_end_, when_captured_, when_abandoned_;
  std::vector<std::function<void(const std::string&)>> when_launch_fails_;
  std::vector<Condition> conditions_, asked_at_return_;

  static inline constinit thread_local StepRecording* current_ = nullptr;
};

class StepRecording::Opening {
 public:
  Opening();
  Opening(const Opening&) = delete;
  Opening& operator=(const Opening&) = delete;
  ~Opening();
};

class StepRecording::Scope {
 public:
  explicit Scope(StepRecording& recording);
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  ~Scope();
};

/// Refuses what a captured step cannot do: it would happen once, and never again.
/// @param what was called. @param instead what to do in its place.
/// @throws Unsupported while the calling thread captures.
void refuse_in_captured_step(std::string_view what, std::string_view instead);
/// @throws Unsupported while the calling thread captures work of such a device.
void refuse_in_captured_step(std::string_view what, std::string_view instead, Device device);

}  // namespace lockstep
