#include "tensor/random_draw.hpp"

#include <algorithm>
#include <vector>

#include "runtime/step_recording.hpp"

namespace lockstep {
namespace {

/// The seeds that a thread drew from last, each at offset 0 in the memory of a GPU. Memory is
/// written once, by the stream on which it is used: so no draw that is still queued finds another
/// seed there, and none comes before its own.
class SeedMemory {
 public:
  IntrusivePtr<Storage> of(std::uint64_t seed, StreamRef stream) {
    const auto known = std::ranges::find_if(
        entries_, [&](const Entry& entry) { return entry.seed == seed && entry.stream == stream; });
    if (known != entries_.end()) {
      std::rotate(entries_.begin(), known, known + 1);
      return entries_.front().memory;
    }
    Entry entry{seed, stream, Storage::allocate(sizeof(PhiloxState), stream.device)};
    backend::of(stream.device)
        .random.set_place(
            {.memory = static_cast<PhiloxState*>(entry.memory->data()), .place = {.seed = seed}},
            stream);
    if (entries_.size() == most) entries_.pop_back();
    entries_.insert(entries_.begin(), std::move(entry));
    return entries_.front().memory;
  }

 private:
  static constexpr std::size_t most = 16;
  struct Entry {
    std::uint64_t seed;
    StreamRef stream;
    IntrusivePtr<Storage> memory;
  };
  std::vector<Entry> entries_;  // the one used last comes first
};

}  // namespace

RandomDraw::RandomDraw(Generator& generator, StreamRef stream) {
  StepRecording* const recording = StepRecording::on(stream.device);
  if (recording) [[unlikely]] {
    if (&generator != &default_generator())
      refuse_in_captured_step("a draw from another generator than default_generator()",
                              "only that one's place moves on with each launch");
    base_ = recording->random();
    state_.offset = recording->next_draw();
    return;
  }
  state_ = generator.next();
  if (stream.device.is_cpu()) return;
  thread_local SeedMemory seeds;
  memory_ = seeds.of(state_.seed, stream);
  base_ = static_cast<const PhiloxState*>(memory_->data());
}

}  // namespace lockstep
