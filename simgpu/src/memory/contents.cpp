#include "memory/contents.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "base/report.hpp"
#include "memory/address_space.hpp"
#include "memory/bits.hpp"
#include "memory/layout.hpp"

namespace simgpu {
namespace {

std::uintptr_t begin_of(const void* data) { return reinterpret_cast<std::uintptr_t>(data); }
std::uintptr_t end_of(const Access& access) { return begin_of(access.data) + access.bytes; }

void report_loss(const Actor& actor, const CallSite& completed, std::uintptr_t begin,
                 std::size_t bytes) {
  report(Finding::lost_result,
         "  first   the program says that a result is complete\n      at " + describe(completed) +
             "\n  second  " + actor.name + " overwrites it on " + actor.place + "\n      at " +
             describe(actor.site) +
             "\n  missing read: nothing has read it, and the program has not discarded it" +
             "\n  memory  " + std::to_string(bytes) + " bytes of " +
             describe_address(reinterpret_cast<const void*>(begin)));
}

}  // namespace

Contents& Contents::instance() {
  static Contents& contents = *new Contents();
  return contents;
}

void Contents::complete(const void* data, std::size_t bytes, const CallSite& site) {
  const std::lock_guard lock(mutex_);
  results_.set(begin_of(data), begin_of(data) + bytes, site);
}

void Contents::discard(const void* data, std::size_t bytes, const CallSite& site) {
  const std::lock_guard lock(mutex_);
  results_.erase(begin_of(data), begin_of(data) + bytes);
  discarded_.set(begin_of(data), begin_of(data) + bytes, site);
  set_bits(Layout::initialized_bits, data, bytes, false);
}

void Contents::forget(const void* data, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  results_.erase(begin_of(data), begin_of(data) + bytes);
  discarded_.erase(begin_of(data), begin_of(data) + bytes);
}

void Contents::overwrite(const Actor& actor, const Access& access) {
  std::pair<std::uintptr_t, std::uintptr_t> where;
  const CallSite* const completed = results_.find(begin_of(access.data), end_of(access), &where);
  if (completed == nullptr) return;
  const std::uintptr_t end = std::min(where.second, end_of(access));
  report_loss(actor, *completed, where.first, end - where.first);
  results_.erase(begin_of(access.data), end_of(access));
}

void Contents::has_run(const Actor& actor, const std::vector<Access>& accesses, bool are_exact) {
  const std::lock_guard lock(mutex_);
  if (results_.empty() && discarded_.empty()) return;
  for (const Access& access : accesses)
    if (!access.writes) results_.erase(begin_of(access.data), end_of(access));
  for (const Access& access : accesses) {
    if (!access.writes) continue;
    discarded_.erase(begin_of(access.data), end_of(access));
    if (are_exact) overwrite(actor, access);
  }
}

std::optional<CallSite> Contents::discarded_at(const void* address) const {
  const std::lock_guard lock(mutex_);
  const CallSite* const site = discarded_.find(begin_of(address), begin_of(address) + 1);
  return site == nullptr ? std::nullopt : std::optional(*site);
}

}  // namespace simgpu
