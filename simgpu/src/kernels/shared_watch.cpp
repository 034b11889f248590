#include "kernels/shared_watch.hpp"

#include <cstring>

#include "kernels/builtins.hpp"
#include "kernels/kernel_findings.hpp"
#include "kernels/kernel_runner.hpp"
#include "kernels/watching.hpp"

namespace simgpu {
namespace {

/// True if nothing orders what happened then before what the running thread does now.
bool unordered(const SharedTime& then, const SharedTime& now) {
  if (then.epoch != now.epoch || then.thread == now.thread) return false;
  const bool same_warp = then.thread / lanes_per_warp == now.thread / lanes_per_warp;
  return !(same_warp && then.completed != now.completed);
}

}  // namespace

void SharedWatch::watch(std::uintptr_t begin, std::size_t bytes) {
  begin_ = begin;
  bytes_ = bytes;
  if (bytes <= cells_size_) return;
  cells_ = zeros<Cell>(bytes);
  cells_size_ = bytes;
}

void SharedWatch::access(std::uintptr_t address, unsigned bytes, AccessKind kind,
                         const SharedTime& now, std::uint32_t block_start) {
  if (suspect_.is_set) look_at_value();
  Cell* const cells = cells_.get() + (address - begin_);
  const std::size_t left = bytes_ - (address - begin_);
  const unsigned covered = bytes < left ? bytes : static_cast<unsigned>(left);
  if (kind != AccessKind::write) {
    bool written = false;
    for (unsigned i = 0; i < covered; ++i) written |= cells[i].write.epoch >= block_start;
    if (!written)
      found(Finding::uninitialized_read, now.thread,
            "reads " + std::to_string(bytes) +
                " bytes of shared memory that no thread of the block has written");
  }
  for (unsigned i = 0; i < covered; ++i)
    if (kind == AccessKind::read)
      check_read(cells[i], address + i, now);
    else
      check_write(cells[i], address + i, kind, now);
}

std::vector<std::byte> SharedWatch::save() const {
  const auto* const data = reinterpret_cast<const std::byte*>(begin_);
  return {data, data + bytes_};
}

/// The rest may not be shared at all.
void SharedWatch::restore(const std::vector<std::byte>& saved, std::uint32_t since) {
  auto* const data = reinterpret_cast<std::byte*>(begin_);
  for (std::size_t i = 0; i < bytes_; ++i)
    if (cells_[i].write.epoch >= since) data[i] = saved[i];
}

void SharedWatch::check_read(Cell& cell, std::uintptr_t address, const SharedTime& now) {
  if (unordered(cell.write, now)) found_race(address, "reads", cell.write, "wrote", now);
  // Two readers are remembered: one of them is not the thread that writes next.
  if (unordered(cell.read, now))
    cell.other_read = now;
  else
    cell.read = now;
}

void SharedWatch::check_write(Cell& cell, std::uintptr_t address, AccessKind kind,
                              const SharedTime& now) {
  const bool atomic = kind == AccessKind::atomic;
  if (unordered(cell.write, now) && !(atomic && cell.atomic_write)) {
    if (atomic || cell.atomic_write)
      found_race(address, atomic ? "changes" : "writes", cell.write, "wrote", now);
    else
      suspect(address, cell.write, now);
  }
  if (unordered(cell.read, now)) found_race(address, "writes", cell.read, "read", now);
  if (unordered(cell.other_read, now)) found_race(address, "writes", cell.other_read, "read", now);
  cell.write = now;
  cell.atomic_write = atomic;
}

void SharedWatch::suspect(std::uintptr_t address, const SharedTime& other, const SharedTime& now) {
  const std::size_t offset = suspect_.is_set ? address - suspect_.address : 0;
  if (offset >= suspect_.value.size()) return;
  if (!suspect_.is_set) suspect_ = {true, address, 0, {}, block_index, other, now};
  suspect_.bytes = static_cast<unsigned>(offset) + 1;
  std::memcpy(suspect_.value.data(), reinterpret_cast<const void*>(suspect_.address),
              suspect_.bytes);
}

/// The hooks are called before the memory changes.
void SharedWatch::look_at_value() {
  const WatchScope off(nullptr);
  suspect_.is_set = false;
  const void* const now = reinterpret_cast<const void*>(suspect_.address);
  if (std::memcmp(suspect_.value.data(), now, suspect_.bytes) == 0) return;
  if (!is_first(Finding::shared_memory_race)) return;
  found_at(Finding::shared_memory_race, suspect_.block, suspect_.now.thread,
           text_of_race(suspect_.address, "writes", suspect_.other, "wrote"));
}

void SharedWatch::found_race(std::uintptr_t address, const char* does, const SharedTime& other,
                             const char* did, const SharedTime& now) const {
  if (!is_first(Finding::shared_memory_race)) return;
  found(Finding::shared_memory_race, now.thread, text_of_race(address, does, other, did));
}

std::string SharedWatch::text_of_race(std::uintptr_t address, const char* does,
                                      const SharedTime& other, const char* did) {
  return std::string(does) + " " + kernel_runner().describe_shared(address) + ", which thread " +
         text_of(kernel_runner().scheduler().index_of(other.thread)) + " " + did +
         " with no barrier between them";
}

}  // namespace simgpu
