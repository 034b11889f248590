#pragma once

#include <map>
#include <string>

#include "lockstep/nn/module.hpp"

/// @file
/// Which names of a module's state are those of buffers.

namespace lockstep::checkpoint {

/// Reads the module's names once, and again where one is asked for that it had not then: a module
/// may get more. The module must live as long.
class BufferNames {
 public:
  explicit BufferNames(const nn::Module& module) : module_(module) {}

  bool contains(const std::string& name) {
    if (!is_buffer_.contains(name)) {
      for (const auto& [each, tensor] : module_.named_state()) is_buffer_[each] = false;
      for (const auto& [each, buffer] : module_.named_buffers()) is_buffer_[each] = true;
      is_buffer_.try_emplace(name, false);
    }
    return is_buffer_.at(name);
  }

 private:
  const nn::Module& module_;
  std::map<std::string, bool> is_buffer_;
};

}  // namespace lockstep::checkpoint
