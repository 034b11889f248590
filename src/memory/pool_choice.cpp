#include <cstdlib>
#include <mutex>
#include <optional>
#include <string_view>

#include "lockstep/core/error.hpp"
#include "memory/device_allocators.hpp"

namespace lockstep {
namespace {

struct Choice {
  std::mutex mutex;
  std::optional<PoolKind> made;
  bool is_final = false;
};

Choice& choice() {
  static Choice& choice = *new Choice;  // pools outlive static storage
  return choice;
}

PoolKind kind_named(std::string_view name, std::string_view whose) {
  if (name == "caching") return PoolKind::caching;
  if (name == "growable") return PoolKind::growable;
  if (name == "async") return PoolKind::async;
  if (name == "none" || name == "off") return PoolKind::none;
  LOCKSTEP_THROW(InvalidArgument, whose,
                 " names a pool: caching, growable, async or none (off), not '", name, "'");
}

PoolKind chosen(Choice& choice) {
  if (!choice.made) {
    const char* value = std::getenv("LOCKSTEP_POOL");
    choice.made = value && *value ? kind_named(value, "LOCKSTEP_POOL") : PoolKind::caching;
  }
  return *choice.made;
}

}  // namespace

void set_pool(std::string_view name) {
  const PoolKind kind = kind_named(name, "set_pool");
  const std::lock_guard lock(choice().mutex);
  LOCKSTEP_CHECK(!choice().is_final || kind == choice().made, InvalidArgument, "set_pool(\"", name,
                 "\") comes too late: memory has been allocated from another pool");
  choice().made = kind;
}

PoolKind pool_kind() {
  const std::lock_guard lock(choice().mutex);
  return chosen(choice());
}

PoolKind final_pool_kind() {
  const std::lock_guard lock(choice().mutex);
  choice().is_final = true;
  return chosen(choice());
}

}  // namespace lockstep
