#include "nccl/registrations.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/report.hpp"
#include "memory/address_space.hpp"
#include "memory/registered_memory.hpp"
#include "nccl/failure.hpp"

namespace simgpu::nccl {

struct RegisteredRange {
  std::uintptr_t begin = 0, end = 0;
  std::size_t count = 0;  // of registrations
  void* handle = nullptr;
  std::uint64_t number = 0;  // of RegisteredMemory
  CallSite site;
};

namespace {

constexpr std::uintptr_t page = 4096;

/// All handles that were ever given out: none is given out twice.
class KnownHandles {
 public:
  static KnownHandles& instance() {
    static auto& all = *new KnownHandles;
    return all;
  }
  void* add(const Registrations* owner, const std::string& name) {
    const std::lock_guard lock(mutex_);
    const auto handle = reinterpret_cast<void*>(++last_ * page);
    all_.emplace(handle, std::pair{owner, name});
    return handle;
  }
  /// What is wrong with a handle that `owner` has not.
  std::string describe(void* handle, const Registrations* owner) const {
    const std::lock_guard lock(mutex_);
    const auto found = all_.find(handle);
    if (found == all_.end()) return "is no handle of ncclCommRegister";
    if (found->second.first == owner) return "was deregistered before";
    return "belongs to another, the " + found->second.second;
  }

 private:
  mutable std::mutex mutex_;
  std::map<void*, std::pair<const Registrations*, std::string>> all_;
  std::uintptr_t last_ = 0;
};

std::string describe_range(const RegisteredRange& range) {
  return "  " + describe_address(reinterpret_cast<const void*>(range.begin));
}

}  // namespace

Registrations::~Registrations() { end({}, false); }

void* Registrations::add(const void* data, std::size_t bytes, const std::string& owner,
                         const CallSite& site) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const std::uintptr_t begin = address / page * page;
  const std::uintptr_t end = (address + bytes + page - 1) / page * page;
  const std::lock_guard lock(mutex_);
  for (const auto& range : ranges_)
    if (range->begin <= begin && end <= range->end) {
      ++range->count;
      return range->handle;
    }
  auto range = std::make_shared<RegisteredRange>();
  *range = {.begin = begin,
            .end = end,
            .count = 1,
            .handle = KnownHandles::instance().add(this, owner),
            .number = RegisteredMemory::instance().add(data, bytes, owner, site),
            .site = site};
  ranges_.push_back(range);
  return range->handle;
}

void Registrations::remove(void* handle, const std::string& owner) {
  std::shared_ptr<RegisteredRange> gone;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(ranges_, handle, [](const auto& r) { return r->handle; });
    if (found != ranges_.end()) {
      if (--(*found)->count > 0) return;
      gone = std::move(*found);
      ranges_.erase(found);
    }
  }
  if (!gone) {
    const std::string what = KnownHandles::instance().describe(handle, this);
    report(Finding::registration, "  ncclCommDeregister of the " + owner + ": the handle " + what +
                                      "\n  at " + describe(CallSite::here()));
    throw Failure(ncclInvalidUsage, "ncclCommDeregister: the handle " + what);
  }
  if (gone.use_count() > 1)
    report(Finding::registration, describe_range(*gone) +
                                      " is deregistered while an operation of the " + owner +
                                      " uses it\n  at " + describe(CallSite::here()) +
                                      "\n  registered by " + describe(gone->site));
  RegisteredMemory::instance().remove(gone->number);
}

void Registrations::end(const std::string& owner, bool is_fault) {
  std::vector<std::shared_ptr<RegisteredRange>> left;
  {
    const std::lock_guard lock(mutex_);
    left = std::exchange(ranges_, {});
  }
  for (const auto& range : left) {
    if (is_fault)
      report(Finding::registration, describe_range(*range) + " is still registered as the " +
                                        owner + " ends\n  registered by " + describe(range->site));
    RegisteredMemory::instance().remove(range->number);
  }
}

std::vector<RegisteredUse> Registrations::of(std::span<const Access> accesses) const {
  std::vector<RegisteredUse> uses;
  const std::lock_guard lock(mutex_);
  if (ranges_.empty()) return uses;
  for (const Access& access : accesses) {
    const auto begin = reinterpret_cast<std::uintptr_t>(access.data);
    const auto found = std::ranges::find_if(ranges_, [&](const auto& range) {
      return range->begin <= begin && begin + access.bytes <= range->end;
    });
    if (found == ranges_.end()) return {};
    uses.push_back(*found);
  }
  return uses;
}

}  // namespace simgpu::nccl
