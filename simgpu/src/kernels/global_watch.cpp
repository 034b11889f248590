#include "kernels/global_watch.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/options.hpp"
#include "kernels/kernel_launch.hpp"
#include "kernels/watching.hpp"

namespace simgpu {

void GlobalWatch::begin_launch(const KernelLaunch& launch) {
  own_shifts_ = &shifts_[launch.kernel];
  fences_.begin_launch();
  is_found_ = false;
}

TouchedBlock GlobalWatch::begin_memory(std::size_t at, const LiveRange& range,
                                       bool may_be_written) {
  TouchedBlock memory{.begin = range.begin, .bytes = range.end - range.begin};
  // Of kernels that run in part no race is told, and their memory may be more than the host's.
  memory.is_followed = options().execute == Execute::all;
  memory.may_be_written = may_be_written && memory.is_followed;
  if (at < own_shifts_->size()) memory.shift = (*own_shifts_)[at];
  return memory;
}

void GlobalWatch::end_memory(std::size_t at, const TouchedBlock& memory) {
  if (at >= own_shifts_->size()) own_shifts_->resize(at + 1, TouchedBlock::coarsest);
  (*own_shifts_)[at] = static_cast<unsigned char>(memory.shift);
}

void GlobalWatch::end_launch() {
  look_at_value();
  arena_.release();
}

namespace {

std::size_t granules(const TouchedBlock& memory, unsigned shift) {
  return (memory.bytes >> shift) + 1;
}

}  // namespace

std::uint64_t* GlobalWatch::add_writes(TouchedBlock& memory) {
  return memory.writes = arena_.take(granules(memory, memory.shift));
}

std::uint64_t* GlobalWatch::add_reads(TouchedBlock& memory) {
  return memory.reads = arena_.take(granules(memory, memory.shift));
}

/// Two readers are remembered: one of them is not the thread that writes next.
void GlobalWatch::add_other_read(TouchedBlock& memory, std::size_t i, AccessStamp now) {
  if (!memory.other_reads) memory.other_reads = arena_.take(granules(memory, memory.shift));
  if (memory.other_reads) memory.other_reads[i] = now.word();
}

std::uint64_t* GlobalWatch::refined(const std::uint64_t* stamps, const TouchedBlock& memory,
                                    unsigned shift) {
  if (!stamps) return nullptr;
  std::uint64_t* const fine = arena_.take(granules(memory, shift));
  if (!fine) return nullptr;
  const std::size_t each = std::size_t{1} << (memory.shift - shift);
  for (std::size_t i = 0; i < memory.bytes >> memory.shift; ++i)
    std::fill_n(fine + i * each, each, stamps[i]);
  return fine;
}

/// Makes granules so small that an access begins and ends with one.
void GlobalWatch::refine(TouchedBlock& memory, std::uintptr_t ends) {
  const auto shift = static_cast<unsigned>(std::countr_zero(ends));
  memory.writes = refined(memory.writes, memory, shift);
  memory.reads = refined(memory.reads, memory, shift);
  memory.other_reads = refined(memory.other_reads, memory, shift);
  memory.shift = shift;
}

bool GlobalWatch::is_race(AccessStamp then, AccessStamp now, bool values) const {
  const bool same_block = then.epoch() >= time_.block_start;
  if (then.is_strong() && now.is_strong())
    return !same_block && (then.is_of_block() || now.is_of_block());
  if (same_block && fences_.have_met(then.thread(), now.thread())) return false;
  if (fences_.is_before_leaving(then)) return false;
  return !fences_.is_before(then, now.thread(), values);
}

void GlobalWatch::check_read(const TouchedBlock& memory, std::size_t i, AccessStamp write,
                             AccessStamp now, const MemoryAccess& access) {
  if (is_found_ || !is_race(write, now, !now.is_strong())) return;
  is_found_ = true;
  report_race(race_of(memory, i, write, false, now, access));
}

void GlobalWatch::check_write(const TouchedBlock& memory, std::size_t i, AccessStamp then,
                              bool was_read, AccessStamp now, const MemoryAccess& access) {
  if (is_found_ || !is_race(then, now, false)) return;
  look_at_value();
  suspect_.is_set = true;
  suspect_.data = reinterpret_cast<const void*>(access.address);
  suspect_.bytes = access.bytes;
  std::memcpy(suspect_.value.data(), suspect_.data, access.bytes);
  suspect_.race = race_of(memory, i, then, was_read, now, access);
}

/// The hooks are called before the memory changes.
void GlobalWatch::look_at_value() {
  if (!suspect_.is_set) return;
  suspect_.is_set = false;
  if (std::memcmp(suspect_.value.data(), suspect_.data, suspect_.bytes) == 0)
    return note_same_value(suspect_.race);
  if (is_found_) return;
  is_found_ = true;
  report_race(suspect_.race);
}

GlobalRace GlobalWatch::race_of(const TouchedBlock& memory, std::size_t i, AccessStamp then,
                                bool was_read, AccessStamp now, const MemoryAccess& access) const {
  using Missing = GlobalRace::Missing;
  const auto place_of = [&](AccessStamp stamp) { return places_.of[stamp.place()]; };
  const char* const does = access.kind == AccessKind::read     ? "reads"
                           : access.kind == AccessKind::atomic ? "changes"
                                                               : "writes";
  const char* const did = was_read ? "reads" : then.is_strong() ? "changes" : "writes";
  const FenceOrder::BlockRun& former = fences_.block_of(then);
  const FenceOrder::BlockRun& own = fences_.running_block();
  const auto has_read = [&](const std::uint64_t* reads, AccessStamp who) {
    return reads && AccessStamp(reads[i]).is_of_same_thread(who);
  };
  GlobalRace race{.first = {former.index, then.thread(), did, place_of(then)},
                  .second = {own.index, now.thread(), does, place_of(now)},
                  .data = reinterpret_cast<const void*>(access.address),
                  .bytes = access.bytes};
  const bool both_change =
      !was_read && (has_read(memory.reads, then) || has_read(memory.other_reads, then));
  if (then.is_strong() && now.is_strong())
    race.missing = Missing::wider_atomic;
  else if (both_change)
    race.missing = Missing::atomic;
  else if (then.epoch() >= time_.block_start)
    race.missing = Missing::barrier;
  else if (!former.has_synchronized || !own.has_synchronized)
    race.missing = Missing::order;
  else
    race.missing = fences_.is_before(then, now.thread(), false) ? Missing::acquiring_fence
                                                                : Missing::releasing_fence;
  return race;
}

}  // namespace simgpu
