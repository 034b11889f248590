#include "memory/planned_memory.hpp"

#include <algorithm>
#include <exception>
#include <functional>
#include <mutex>
#include <numeric>
#include <utility>

#include "lockstep/core/error.hpp"
#include "lockstep/memory/block_observer.hpp"
#include "lockstep/memory/memory_tag.hpp"
#include "lockstep/memory/out_of_memory.hpp"
#include "runtime/step_recording.hpp"

namespace lockstep {

/// A place of the plan, and the block that has it.
struct PlannedMemory::Place : MemoryBlock {
  Arena* arena = nullptr;
  std::vector<StreamRef> other_streams;
  std::byte* begin() const noexcept { return static_cast<std::byte*>(data); }
  std::byte* end() const noexcept { return begin() + size; }
};

/// The memory of a plan.
struct PlannedMemory::Arena {
  std::vector<MemoryBlock*> pieces;
  StreamRef stream;
  std::vector<Place> places;
  std::vector<Place*> out;  // by address

  bool holds(const MemoryBlock* block) const noexcept {
    return places.data() <= block && block < places.data() + places.size();
  }

  /// False if somebody has memory that overlaps it.
  bool take(Place& place) noexcept {
    const auto behind = std::ranges::upper_bound(out, place.begin(), {}, &Place::begin);
    if (behind != out.end() && (*behind)->begin() < place.end()) return false;
    if (behind != out.begin() && place.begin() < behind[-1]->end()) return false;
    out.insert(behind, &place);  // there is room for all places
    return true;
  }
  void put_back(Place& place) noexcept {
    out.erase(std::ranges::lower_bound(out, place.begin(), {}, &Place::begin));
  }
};

namespace {

std::mutex all_mutex;

std::size_t round_up(std::size_t value, std::size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

PlannedMemory& PlannedMemory::borrow(Device device) {
  static auto& all = *new std::vector<std::unique_ptr<PlannedMemory>>;
  const std::lock_guard lock(all_mutex);
  for (const auto& memory : all)
    if (memory->device_ == device && !std::exchange(memory->is_taken_, true)) return *memory;
  all.push_back(std::make_unique<PlannedMemory>(memory_pool(device), device_runtime(device.type),
                                                device, pool_kind() != PoolKind::none));
  return *all.back();
}

PlannedMemory::PlannedMemory(MemoryPool& pool, DeviceRuntime& runtime, Device device, bool plans)
    : pool_(pool), runtime_(runtime), device_(device), plans_(plans), waiting_(runtime) {}

PlannedMemory::~PlannedMemory() = default;

void PlannedMemory::give_back() noexcept {
  try {
    if (!StepRecording::is_any_open()) {  // a capture lets nobody wait
      const std::lock_guard lock(lock_);
      waiting_.synchronize();
    }
    drop_arena();
  } catch (const std::exception&) {
    // The device has failed: nothing of it is used any more.
  }
  requests_.clear();
  others_in_a_row_ = 0;
  rest_ = 0;
  most_rest_ = 1;
  {
    const std::lock_guard lock(lock_);
    counts_ = {};
  }
  const std::lock_guard lock(all_mutex);
  is_taken_ = false;
}

MemoryPlannerStatistics PlannedMemory::planner_statistics() const {
  const std::lock_guard lock(lock_);
  return counts_;
}

PlannedMemory::Kind PlannedMemory::kind_of_next() const noexcept {
  const bool is_first = counts_.other_steps + counts_.recorded_steps + counts_.planned_steps == 0;
  if (!plans_ || is_first || rest_ > 0) return Kind::left_alone;
  return counts_.recorded_steps == 0 || has_failed() ? Kind::recorded : Kind::planned;
}

void PlannedMemory::begin_step(StreamRef stream) {
  refuse_in_captured_step("a step of a MemoryPlanner begins",
                          "begin it outside; what is captured has memory of its own");
  LOCKSTEP_CHECK(!is_open_.exchange(true), InvalidArgument,
                 "a step of this MemoryPlanner begins within another; end that first");
  try {
    kind_ = kind_of_next();
    {
      const std::lock_guard lock(lock_);
      reclaim_finished();
    }
    if (has_failed()) drop_arena();
    if (kind_ == Kind::recorded) {
      requests_.clear();
      stream_ = stream;
    } else if (kind_ == Kind::planned && !arena_ && !make_plan()) {
      kind_ = Kind::left_alone;
      others_in_a_row_ = most_others;
      put_off();
    }
  } catch (...) {
    is_open_ = false;
    throw;
  }
  next_ = 0;
  is_late_ = false;
  is_otherwise_ = kind_ == Kind::left_alone || stream != stream_;
  const std::lock_guard lock(lock_);
  records_ = kind_ == Kind::recorded;
  event_ = 0;
}

void PlannedMemory::end_step() noexcept {
  {
    const std::lock_guard lock(lock_);
    records_ = false;
    open_.clear();
    switch (kind_) {
      case Kind::left_alone:
        ++counts_.other_steps;
        if (rest_ > 0) --rest_;
        break;
      case Kind::recorded:
        ++counts_.recorded_steps;
        others_in_a_row_ = 0;
        has_served_ = false;
        break;
      case Kind::planned: count_planned(!is_otherwise_ && !is_late_ && next_ == requests_.size());
    }
  }
  is_open_ = false;
}

/// Steps that keep differing are recorded more and more seldom.
void PlannedMemory::count_planned(bool went_as_planned) noexcept {
  if (went_as_planned) {
    ++counts_.planned_steps;
    others_in_a_row_ = 0;
    has_served_ = true;
    return;
  }
  ++counts_.other_steps;
  ++others_in_a_row_;
  if (has_failed()) put_off();
}

void PlannedMemory::put_off() noexcept {
  most_rest_ = has_served_ ? 1 : std::min(2 * most_rest_, 1024);
  rest_ = most_rest_ - 1;
}

/// Places for what the recorded step returned. @return false if there is nothing to plan, or the
/// device has too little memory for it.
bool PlannedMemory::make_plan() {
  const std::size_t guard = guard_bytes(), alignment = device_.is_cpu() ? 64 : 512;
  std::vector<detail::Lifetime> lifetimes;
  for (Request& request : requests_) {
    request.place = Request::nowhere;
    if (request.end == 0) continue;
    request.place = lifetimes.size();
    lifetimes.push_back({round_up(request.bytes + guard, alignment), request.begin, request.end});
  }
  if (lifetimes.empty()) return false;
  auto arena = std::make_unique<Arena>();
  arena->stream = stream_;
  arena->places.resize(lifetimes.size());
  arena->out.reserve(lifetimes.size());
  try {
    const MemoryTag tag("planned step");
    pool_.release_cached();  // what the recorded step had
    take_free_pieces(*arena);
    place(*arena, lifetimes);
  } catch (const OutOfMemory&) {
    give_back_pieces(*arena);
    return false;
  }
  if (BlockObserver* observer = block_observer())
    for (const MemoryBlock* piece : arena->pieces) observer->freed(*piece, stream_);
  const std::lock_guard lock(lock_);
  counts_.planned_bytes = 0;
  for (const MemoryBlock* piece : arena->pieces) counts_.planned_bytes += piece->size;
  counts_.most_live_bytes = detail::most_live_bytes(lifetimes);
  arena_ = std::move(arena);
  return true;
}

std::size_t PlannedMemory::guard_bytes() const noexcept {
  const BlockObserver* const observer = block_observer();
  return observer ? observer->guard_bytes(device_) : 0;
}

/// What lies free beside blocks that stay, and cannot go back to the upstream.
void PlannedMemory::take_free_pieces(Arena& arena) {
  constexpr std::size_t worth_it = std::size_t{1} << 20;
  std::vector<std::size_t> free;
  for (const MemorySegmentInfo& segment : pool_.snapshot().segments)
    if (segment.stream == stream_ && !segment.small)
      for (const MemoryBlockInfo& block : segment.blocks)
        if (block.state == "inactive" && block.bytes > worth_it + guard_bytes())
          free.push_back(block.bytes - guard_bytes());
  // The largest first: then none is cut for a smaller request.
  std::ranges::sort(free, std::greater());
  arena.pieces.reserve(free.size() + 1);
  for (const std::size_t bytes : free) arena.pieces.push_back(pool_.allocate(bytes, stream_));
}

/// Places all blocks in the pieces of the arena, and one more piece for those that do not fit.
void PlannedMemory::place(Arena& arena, std::span<const detail::Lifetime> lifetimes) {
  std::vector<std::size_t> sizes;
  for (const MemoryBlock* piece : arena.pieces) sizes.push_back(piece->size);
  const detail::OffsetPlan plan = detail::plan_offsets(lifetimes, sizes);
  std::vector<std::size_t> begins(sizes.size() + 1);  // of the pieces
  std::partial_sum(sizes.begin(), sizes.end(), begins.begin() + 1);
  if (plan.bytes > begins.back())
    arena.pieces.push_back(pool_.allocate(plan.bytes - begins.back(), stream_));
  for (std::size_t i = 0; i < lifetimes.size(); ++i) {
    const auto piece = static_cast<std::size_t>(std::ranges::upper_bound(begins, plan.offsets[i]) -
                                                begins.begin() - 1);
    Place& place = arena.places[i];
    place.arena = &arena;
    place.size = lifetimes[i].bytes;
    place.data =
        static_cast<std::byte*>(arena.pieces[piece]->data) + (plan.offsets[i] - begins[piece]);
  }
  std::erase_if(arena.pieces, [&](MemoryBlock* piece) {
    const auto lies_in = [piece](const Place& place) {
      return piece->data <= place.data &&
             place.end() <= static_cast<std::byte*>(piece->data) + piece->size;
    };
    const bool is_used = std::ranges::any_of(arena.places, lies_in);
    if (!is_used) pool_.deallocate(piece);
    return !is_used;
  });
}

void PlannedMemory::give_back_pieces(Arena& arena) noexcept {
  for (MemoryBlock* piece : arena.pieces) pool_.deallocate(piece);
}

void PlannedMemory::drop_arena() {
  const std::lock_guard lock(lock_);
  counts_.planned_bytes = counts_.most_live_bytes = 0;
  reclaim_finished();  // which ends former ones: this is none yet
  if (!arena_) return;
  former_.push_back(std::move(arena_));
  return_if_empty(*former_.back());
}

/// Returns the memory of a former plan, once nobody has any of it.
void PlannedMemory::return_if_empty(Arena& arena) {
  if (!arena.out.empty()) return;
  if (BlockObserver* observer = block_observer())
    for (const MemoryBlock* piece : arena.pieces)
      observer->allocated(*piece, piece->size, arena.stream);
  give_back_pieces(arena);
  std::erase_if(former_, [&](const auto& former) { return former.get() == &arena; });
}

MemoryBlock* PlannedMemory::allocate(std::size_t bytes, StreamRef stream) {
  if (bytes <= small_limit || is_otherwise_ || stream != stream_)
    return pool_.allocate(bytes, stream);
  if (kind_ == Kind::recorded) return record(bytes, stream);
  MemoryBlock* const block = serve(bytes);
  return block ? block : pool_.allocate(bytes, stream);
}

MemoryBlock* PlannedMemory::record(std::size_t bytes, StreamRef stream) {
  MemoryBlock* const block = pool_.allocate(bytes, stream);
  try {
    const std::lock_guard lock(lock_);
    requests_.push_back({bytes, ++event_, 0, Request::nowhere});
    open_.emplace(block, requests_.size() - 1);
  } catch (...) {
    pool_.deallocate(block);
    throw;
  }
  return block;
}

/// The place of the next request, or null where that is not to be had.
MemoryBlock* PlannedMemory::serve(std::size_t bytes) {
  if (!arena_ || next_ == requests_.size() || requests_[next_].bytes != bytes) {
    is_otherwise_ = true;
    return nullptr;
  }
  const Request& request = requests_[next_++];
  if (request.place == Request::nowhere) return nullptr;
  const std::lock_guard lock(lock_);
  reclaim_finished();
  Place& place = arena_->places[request.place];
  if (!arena_->take(place)) {
    is_late_ = true;
    return nullptr;
  }
  if (BlockObserver* observer = block_observer()) [[unlikely]]
    observer->allocated(place, bytes, stream_);
  return &place;
}

PlannedMemory::Arena* PlannedMemory::arena_of(const MemoryBlock* block) noexcept {
  if (arena_ && arena_->holds(block)) return arena_.get();
  for (const auto& former : former_)
    if (former->holds(block)) return former.get();
  return nullptr;
}

void PlannedMemory::deallocate(MemoryBlock* block) noexcept {
  if (!block) return;
  if (block->size <= small_limit) return pool_.deallocate(block);
  std::unique_lock lock(lock_);
  if (!arena_of(block)) {
    if (records_)
      if (const auto found = open_.find(block); found != open_.end()) {
        requests_[found->second].end = ++event_;
        open_.erase(found);
      }
    lock.unlock();
    return pool_.deallocate(block);
  }
  StepRecording* const recording = StepRecording::current();
  if (recording && !device_.is_cpu())
    return recording->at_end([this, block] { deallocate(block); });
  auto& place = static_cast<Place&>(*block);
  if (!place.other_streams.empty()) {
    const auto streams = std::exchange(place.other_streams, {});
    if (place.arena == arena_.get()) {
      if (!waiting_.add(&place, streams)) return;
    } else {
      // Nobody gets the place again, so that all of the memory may wait in the pool.
      for (MemoryBlock* piece : place.arena->pieces)
        for (const StreamRef stream : streams) pool_.record_stream(piece, stream);
    }
  }
  free_place(place);
}

void PlannedMemory::free_place(Place& place) noexcept {
  Arena& arena = *place.arena;
  if (BlockObserver* observer = block_observer()) [[unlikely]]
    observer->freed(place, arena.stream);
  arena.put_back(place);
  if (&arena != arena_.get()) return_if_empty(arena);
}

void PlannedMemory::reclaim_finished() {
  if (waiting_.empty()) return;
  waiting_.reclaim([this](Place* place) { free_place(*place); });
}

void PlannedMemory::record_stream(MemoryBlock* block, StreamRef stream) {
  if (!block) return;
  if (block->size <= small_limit) return pool_.record_stream(block, stream);
  std::unique_lock lock(lock_);
  if (Arena* const arena = arena_of(block)) {
    auto& others = static_cast<Place*>(block)->other_streams;
    if (stream != arena->stream && std::ranges::find(others, stream) == others.end())
      others.push_back(stream);
    return;
  }
  // Such a block comes back at a time that is not the step's: it gets no place.
  if (records_ && stream != stream_) open_.erase(block);
  lock.unlock();
  pool_.record_stream(block, stream);
}

}  // namespace lockstep
