#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

/// @file
/// Who allocates: the module, the op and the scope (MemoryTag) of the calling thread.

namespace lockstep::detail {

/// While there is one, the ops of all threads are followed.
class OpTracing {
 public:
  OpTracing();
  OpTracing(const OpTracing&) = delete;
  OpTracing& operator=(const OpTracing&) = delete;
  ~OpTracing();
};

/// Numbers of tags. Not for several threads.
class AllocationTags {
 public:
  /// The number of what the calling thread does now; 0: nothing with a name.
  std::uint32_t current();
  /// The texts by number: "blocks.3.fc1: linear backward".
  const std::vector<std::string>& texts() const noexcept { return texts_; }

 private:
  struct Key {
    std::uint32_t place;
    bool backward;
    std::string scope, op;
    auto operator<=>(const Key&) const = default;
  };
  static std::string text_of(const Key& key);

  OpTracing tracing_;
  std::map<Key, std::uint32_t> numbers_;
  std::vector<std::string> texts_{"untagged"};
};

}  // namespace lockstep::detail
