#include "base/leaks.hpp"

#include <map>
#include <mutex>
#include <utility>

#include "base/options.hpp"
#include "base/report.hpp"

namespace simgpu {
namespace {

struct Object {
  CallSite site;
  std::string detail;
  bool kept = false;
};

/// Live objects by kind and address. Never destroyed: objects end after static destructors too.
struct Registry {
  std::mutex mutex;
  std::map<std::pair<std::string, const void*>, Object> live;
  int keeping = 0;
};

Registry& registry() {
  static Registry* const all = new Registry;
  return *all;
}

}  // namespace

void object_created(const char* kind, const void* object, std::string detail) {
  Registry& all = registry();
  const CallSite site = CallSite::here();
  const std::lock_guard lock(all.mutex);
  all.live[{kind, object}] = {site, std::move(detail), all.keeping > 0};
}

void object_destroyed(const char* kind, const void* object) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.live.erase({kind, object});
}

void begin_keeping() {
  const std::lock_guard lock(registry().mutex);
  ++registry().keeping;
}

void end_keeping() {
  const std::lock_guard lock(registry().mutex);
  --registry().keeping;
}

void keep_live_objects() {
  const std::lock_guard lock(registry().mutex);
  for (auto& [key, object] : registry().live) object.kept = true;
}

std::size_t report_leaks() {
  struct Group {
    std::size_t objects = 0;
    std::string detail;
  };
  std::map<std::pair<std::string, std::string>, Group> groups;
  std::size_t leaked = 0;
  {
    const std::lock_guard lock(registry().mutex);
    for (const auto& [key, object] : registry().live) {
      // A pool keeps its memory, but not the blocks that it gave out: these are kept by who asked.
      const Frames makers = key.first == "pool block" ? Frames::shown : Frames::all;
      if (object.kept || is_below(object.site, options().keepers, makers)) continue;
      ++leaked;
      Group& group = groups[{key.first, describe(object.site)}];
      ++group.objects;
      if (group.detail.empty()) group.detail = object.detail;
    }
  }
  for (const auto& [key, group] : groups)
    report(Finding::leak, "  " + std::to_string(group.objects) + " x " + key.first +
                              (group.detail.empty() ? "" : " (" + group.detail + ")") +
                              " never destroyed, made by " + key.second);
  return leaked;
}

}  // namespace simgpu
