#include "backend/backend.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <sstream>
#include <string>

#include "lockstep/core/error.hpp"
#include "lockstep/core/macros.hpp"

namespace lockstep::backend {
namespace {

/// The CPU backend of that name, or null.
const Backend* find_cpu_backend(std::string_view name) {
  if (name == cpu().name) return &cpu();
  const Backend* fast = onednn();
  return fast && name == fast->name ? fast : nullptr;
}

const Backend& require_cpu_backend(std::string_view name, std::string_view asked_by) {
  if (const Backend* found = find_cpu_backend(name)) return complete(*found);
  lockstep::detail::TextStream available;
  for (const auto each : cpu_backends()) available << ' ' << each;
  LOCKSTEP_THROW(InvalidArgument, asked_by, ": no CPU backend \"", name,
                 "\" in this build; available:", available.str());
}

const Backend& initial_cpu_backend() {
  const char* wanted = std::getenv("LOCKSTEP_CPU_BACKEND");
  if (wanted && *wanted) return require_cpu_backend(wanted, "LOCKSTEP_CPU_BACKEND");
  return complete(onednn() ? *onednn() : cpu());
}

std::atomic<const Backend*> chosen_cpu_backend{nullptr};  // null: not asked for yet

/// Makes the initial choice, unless another thread has chosen meanwhile.
LOCKSTEP_COLD const Backend& choose_cpu_backend() {
  const Backend* none = nullptr;
  const Backend& initial = initial_cpu_backend();
  return chosen_cpu_backend.compare_exchange_strong(none, &initial) ? initial : *none;
}

/// True if a table of function pointers has no gap.
template <class Table>
bool is_full(const Table& table) {
  using Entry = void (*)();
  const auto entries = std::bit_cast<std::array<Entry, sizeof(Table) / sizeof(Entry)>>(table);
  return std::ranges::find(entries, nullptr) == entries.end();
}

}  // namespace

const Backend& complete(const Backend& backend) {
  std::string missing;
  const auto require = [&missing](const auto& family, std::string_view name) {
    if (!is_full(family)) missing.append(missing.empty() ? "" : ", ").append(name);
  };
#define LOCKSTEP_FAMILY(name, Table) require(backend.name, #name);
  LOCKSTEP_KERNEL_FAMILIES(LOCKSTEP_FAMILY)
#undef LOCKSTEP_FAMILY
  if (!backend.optimizers) missing.append(missing.empty() ? "" : ", ").append("optimizers");
  LOCKSTEP_CHECK(missing.empty(), Unsupported, "backend \"", backend.name,
                 "\" has no kernels of the families: ", missing,
                 "; a backend starts from another one's table and replaces what it has");
  return backend;
}

const Backend& of(Device device) {
  if (device.is_cpu()) {
    const Backend* chosen = chosen_cpu_backend.load(std::memory_order_acquire);
    return chosen ? *chosen : choose_cpu_backend();
  }
  static const Backend* const gpu = cuda() ? &complete(*cuda()) : nullptr;
  LOCKSTEP_CHECK(gpu, Unsupported, "no backend for device ", device,
                 ": this lockstep was built without CUDA; use device cpu");
  return *gpu;
}

std::vector<std::string_view> cpu_backends() {
  std::vector<std::string_view> names;
  if (onednn()) names.push_back(onednn()->name);
  names.push_back(cpu().name);
  return names;
}

void use_cpu_backend(std::string_view name) {
  const Backend& chosen = require_cpu_backend(name, "use_cpu_backend");
  chosen_cpu_backend.store(&chosen, std::memory_order_release);
}

}  // namespace lockstep::backend
