#include <algorithm>
#include <iterator>

#include <unistd.h>

#include "base/report.hpp"
#include "engine/host.hpp"
#include "engine/machine.hpp"
#include "memory/address_space.hpp"
#include "memory/contents.hpp"
#include "memory/host_memory.hpp"
#include "memory/pinned_pages.hpp"

/// @file
/// What the machine tells its race detector, and what it says about the findings.

namespace simgpu {
namespace {

std::string identity(const Actor& actor) {
  std::string text = actor.name + actor.place;
  for (std::size_t i = 0; i < actor.site.count; ++i)
    text += ' ' + std::to_string(reinterpret_cast<std::uintptr_t>(actor.site.frames[i]));
  return text;
}

void report_race(const Race& race) {
  const bool with_host = race.first->is_host || race.second->is_host;
  std::string text = explain(race) + "\n  memory  " + std::to_string(race.bytes) + " bytes of " +
                     describe_address(race.data);
  const std::string former =
      describe_former(race.data, std::min(race.first->number, race.second->number));
  if (!former.empty()) text += "\n  before  " + former;
  report(with_host ? Finding::host_race : Finding::race, std::move(text));
}

}  // namespace

void Machine::check_accesses(const std::shared_ptr<const Actor>& actor,
                             const std::vector<Access>& accesses) {
  std::vector<Race> fresh;
  {
    const std::lock_guard lock(races_mutex_);
    for (const Access& access : accesses) {
      if (!is_tracked(access.data)) continue;
      for (Race& race : races_.add(actor, access))
        if (reported_.emplace(identity(*race.first), identity(*race.second)).second)
          fresh.push_back(std::move(race));
    }
  }
  for (const Race& race : fresh) report_race(race);
}

VectorClock Machine::what_the_host_knows() {
  const auto guard = lock();
  return host_clock();
}

void Machine::note_pinned(const std::shared_ptr<const Actor>& actor,
                          const std::vector<Access>& accesses) {
  for (const Access& access : accesses) {
    const bool is_tracked_here = is_tracked(access.data);
    if (is_tracked_here ? slot_of(access.data) != Layout::pinned_slot
                        : !HostMemory::instance().find(access.data))
      continue;
    const VectorClock host = what_the_host_knows();
    {
      const std::lock_guard lock(races_mutex_);
      pinned_.emplace_back(actor, access);
      if (pinned_.size() > most_pinned_) {
        std::erase_if(pinned_, [&](const auto& use) { return host.knows(use.first->epoch); });
        most_pinned_ = 2 * pinned_.size() + 64;
      }
    }
    if (is_tracked_here) close_to_host(access.data, access.bytes);
  }
}

std::vector<std::pair<std::shared_ptr<const Actor>, Access>> Machine::unfinished_uses(
    const void* data, std::size_t bytes) {
  const VectorClock host = what_the_host_knows();
  const std::lock_guard guard(races_mutex_);
  std::erase_if(pinned_, [&](const auto& use) { return host.knows(use.first->epoch); });
  const auto* const begin = static_cast<const char*>(data);
  std::vector<std::pair<std::shared_ptr<const Actor>, Access>> uses;
  std::ranges::copy_if(pinned_, std::back_inserter(uses), [&](const auto& use) {
    const auto* const used = static_cast<const char*>(use.second.data);
    return used < begin + bytes && begin < used + use.second.bytes;
  });
  return uses;
}

bool Machine::host_is_up_to_date_with(const void* data, std::size_t bytes) {
  return unfinished_uses(data, bytes).empty();
}

void Machine::check_given_back(const char* call, const void* data, std::size_t bytes,
                               const CallSite& site) {
  const auto uses = unfinished_uses(data, bytes);
  if (uses.empty()) return;
  const auto& [user, access] = uses.front();
  std::shared_ptr<Actor> host;
  {
    const auto guard = lock();
    host = std::make_shared<Actor>(*host_actor(call, site));
  }
  host->changes_hands = true;
  const Race race{.first = user,
                  .second = std::move(host),
                  .first_writes = access.writes,
                  .data = access.data,
                  .bytes = access.bytes};
  {
    const std::lock_guard guard(races_mutex_);
    if (!reported_.emplace(identity(*race.first), identity(*race.second)).second) return;
  }
  report_race(race);
}

bool host_is_up_to_date_with(const void* data, std::size_t bytes) {
  return Machine::instance().host_is_up_to_date_with(data, bytes);
}

void Machine::forget_accesses(const void* data, std::size_t bytes) {
  const std::lock_guard lock(races_mutex_);
  races_.forget(data, bytes);
}

std::shared_ptr<const Actor> Machine::writer_near(const void* address, const void* begin,
                                                  std::size_t bytes) {
  const std::lock_guard lock(races_mutex_);
  return races_.writer_near(address, begin, static_cast<const std::byte*>(begin) + bytes);
}

std::string describe_writer_near(const void* address, const void* begin, std::size_t bytes) {
  const auto writer = Machine::instance().writer_near(address, begin, bytes);
  if (writer == nullptr) return {};
  return "last written by " + writer->name + " on " + writer->place + "\n      at " +
         describe(writer->site);
}

std::shared_ptr<const Actor> Machine::host_actor(std::string name, const CallSite& site) {
  std::string place = "the host";
  Component component = host_component;
  if (host_threads_are_apart()) {
    if (host_thread_component() == 0) host_thread_component() = ++components_;
    component = host_thread_component();
    place = "a thread of the host (" + std::to_string(::gettid()) + ")";
  }
  const Epoch epoch = host_clock().advance(component);
  return std::make_shared<const Actor>(Actor{std::move(name), site, std::move(place), epoch,
                                             host_clock(), true, next_call_number()});
}

void forget_accesses(const void* data, std::size_t bytes) {
  Contents::instance().forget(data, bytes);
  Machine::instance().forget_accesses(data, bytes);
}

void host_access(const void* data, std::size_t bytes, bool writes, const CallSite& site) {
  const OwnLocks own;
  Machine& machine = Machine::instance();
  std::shared_ptr<const Actor> actor;
  {
    const auto lock = machine.lock();
    actor = machine.host_actor("the program", site);
  }
  machine.check_accesses(actor, {{data, bytes, writes}});
}

void check_given_back(const char* call, const void* data, std::size_t bytes, const CallSite& site) {
  const OwnLocks own;
  Machine::instance().check_given_back(call, data, bytes, site);
}

}  // namespace simgpu
