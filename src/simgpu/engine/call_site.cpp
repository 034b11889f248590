#include "simgpu/engine/call_site.hpp"

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include <execinfo.h>

#include "simgpu/engine/symbols.hpp"

namespace simgpu {
namespace {

constexpr std::size_t callers_shown = 4;

std::string hexadecimal(const void* address) {
  char text[32];
  std::snprintf(text, sizeof text, "%p", address);
  return text;
}

bool starts_with_one_of(std::string_view text, std::initializer_list<std::string_view> prefixes) {
  for (const std::string_view prefix : prefixes)
    if (text.substr(0, prefix.size()) == prefix) return true;
  return false;
}

// The simulated libraries, and lockstep's own layers that only pass a call on to them.
bool is_plumbing(const Symbol& symbol) {
  for (const std::string_view folder :
       {"src/simgpu/", "src/runtime/cuda/", "src/memory/cuda/", "lockstep/runtime/", "src/runtime/",
        "kernels/cuda/launch.hpp", "include/c++/"})
    if (symbol.file.find(folder) != std::string::npos) return true;
  if (!symbol.file.empty()) return false;
  return starts_with_one_of(symbol.function, {"simgpu::", "cuda", "nccl", "cublasLt", "std::"});
}

// The last three parts of a path say enough.
std::string_view shortened(std::string_view path) {
  std::size_t from = path.size();
  for (int parts = 0; parts < 3 && from != std::string_view::npos && from != 0; ++parts)
    from = path.rfind('/', from - 1);
  return from == std::string_view::npos || from == 0 ? path : path.substr(from + 1);
}

std::string line_of(const Symbol& symbol) {
  if (symbol.file.empty()) return symbol.function;
  return symbol.function + " (" + std::string(shortened(symbol.file)) + ":" +
         std::to_string(symbol.line) + ")";
}

}  // namespace

CallSite CallSite::here() {
  CallSite site;
  const int taken = ::backtrace(site.frames.data(), static_cast<int>(depth));
  site.count = taken > 0 ? static_cast<std::size_t>(taken) : 0;
  return site;
}

std::string describe(const CallSite& site) {
  std::string text;
  std::size_t shown = 0;
  for (std::size_t i = 1; i < site.count && shown <= callers_shown; ++i) {
    // A return address belongs to the line after the call.
    const auto* const call = static_cast<const char*>(site.frames[i]) - 1;
    for (const Symbol& symbol : symbols_of(call)) {
      if ((shown == 0 && is_plumbing(symbol)) || shown > callers_shown) continue;
      if (shown++ > 0) text += "\n      from ";
      text += line_of(symbol);
      if (symbol.function == "main") return text;
    }
  }
  if (text.empty())
    return site.count == 0 ? "an unknown place" : hexadecimal(site.frames[site.count - 1]);
  return text;
}

bool is_below(const CallSite& site, std::string_view parts) {
  for (std::size_t i = 0; i < site.count; ++i)
    for (const Symbol& symbol : symbols_of(static_cast<const char*>(site.frames[i]) - 1))
      for (std::size_t from = 0, end = 0; from < parts.size(); from = end + 1) {
        end = std::min(parts.find(';', from), parts.size());
        const std::string_view part = parts.substr(from, end - from);
        if (!part.empty() && symbol.function.find(part) != std::string::npos) return true;
      }
  return false;
}

std::string function_name(const void* function) {
  static std::mutex mutex;
  static auto* const known = new std::unordered_map<const void*, std::string>;
  const std::lock_guard lock(mutex);
  std::string& name = (*known)[function];
  if (!name.empty()) return name;
  const std::vector<Symbol> symbols = symbols_of(function);
  return name = symbols.empty() ? hexadecimal(function) : symbols.back().function;
}

}  // namespace simgpu
