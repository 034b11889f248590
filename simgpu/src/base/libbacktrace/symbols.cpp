#include "base/symbols.hpp"

#include <cstdint>

#include <backtrace.h>

namespace simgpu {
namespace {

backtrace_state* state() {
  static backtrace_state* const created = backtrace_create_state(
      nullptr, 1, [](void*, const char*, int) {}, nullptr);
  return created;
}

int add_frame(void* to, std::uintptr_t, const char* file, int line, const char* function) {
  if (function != nullptr)
    static_cast<std::vector<Symbol>*>(to)->push_back(
        {readable(function), file == nullptr ? "" : file, line});
  return 0;
}

void add_name(void* to, std::uintptr_t, const char* name, std::uintptr_t, std::uintptr_t) {
  if (name != nullptr) static_cast<std::vector<Symbol>*>(to)->push_back({readable(name), "", 0});
}

void ignore_error(void*, const char*, int) {}

}  // namespace

std::vector<Symbol> symbols_of(const void* address) {
  std::vector<Symbol> symbols;
  const auto place = reinterpret_cast<std::uintptr_t>(address);
  backtrace_pcinfo(state(), place, add_frame, ignore_error, &symbols);
  if (symbols.empty()) backtrace_syminfo(state(), place, add_name, ignore_error, &symbols);
  return symbols;
}

}  // namespace simgpu
