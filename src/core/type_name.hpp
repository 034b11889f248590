#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <typeinfo>

#include <cxxabi.h>

/// @file
/// Names of classes, for messages.

namespace lockstep::detail {

/// The whole name, as the program writes it.
inline std::string full_name_of(const std::type_info& type) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> demangled(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, &status), std::free);
  return status == 0 ? demangled.get() : type.name();
}

/// The name without namespaces and template arguments.
inline std::string short_name_of(std::string name) {
  name = name.substr(0, name.find('<'));
  const auto colon = name.rfind(':');
  return colon == std::string::npos ? name : name.substr(colon + 1);
}

}  // namespace lockstep::detail
